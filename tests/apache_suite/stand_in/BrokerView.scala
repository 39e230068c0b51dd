package kafka.server

import java.io.File
import java.util
import java.util.Properties

import kafka.cluster.Partition
import kafka.controller.{ControllerContext, KafkaController}
import kafka.log.{LogManager, UnifiedLog}
import kafka.zk.{DelegationTokensZNode, KafkaZkClient}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState
import org.apache.kafka.common.requests.ListOffsetsRequest.{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP}
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache
import org.apache.kafka.coordinator.group.GroupCoordinator
import org.apache.kafka.storage.internals.log.{ProducerStateEntry, ProducerStateManager}
import org.mockito.ArgumentMatchers.{any, anyBoolean}
import org.mockito.Mockito.{RETURNS_DEFAULTS, doAnswer, mock}
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

import scala.jdk.CollectionConverters._

/**
 * Answers tests that look into the parts of a Kafka server. The facts come from ZooKeeper, from the broker's data directories, and from
 * the broker itself where it can be asked without authentication.
 */
class BrokerView(config: KafkaConfig, zooKeeper: KafkaZkClient, wire: Option[Wire], isRunning: () => Boolean) {
  import BrokerView.{answer, part}

  def controller: KafkaController = {
    val view = part(classOf[KafkaController])
    answer(isRunning() && zooKeeper.getControllerId.contains(config.brokerId)).when(view).isActive
    answer {
      val context = new ControllerContext
      zooKeeper.getTopicIdsForTopics(zooKeeper.getAllTopicsInCluster()).foreach { case (topic, id) =>
        context.topicIds(topic) = id
        context.topicNames(id) = topic
      }
      context
    }.when(view).controllerContext
    view
  }

  def logManager: LogManager = {
    val view = part(classOf[LogManager])
    doAnswer(call => log(call.getArgument[TopicPartition](0))).when(view).getLog(any(), anyBoolean())
    answer(config.logDirs.map(new File(_).getAbsoluteFile)).when(view).liveLogDirs
    view
  }

  def replicaManager(metadataCache: MetadataCache): ReplicaManager = {
    val view = part(classOf[ReplicaManager])
    val logs = logManager
    answer(logs).when(view).logManager
    answer(metadataCache).when(view).metadataCache
    doAnswer(call => if (isRunning()) partition(call.getArgument[TopicPartition](0)) else None).when(view).onlinePartition(any())
    doAnswer(call => if (isRunning()) log(call.getArgument[TopicPartition](0)) else None).when(view).localLog(any())
    view
  }

  def tokenCache: DelegationTokenCache = {
    val view = part(classOf[DelegationTokenCache])
    answer(zooKeeper.getChildren(DelegationTokensZNode.path).flatMap(zooKeeper.getDelegationTokenInfo).asJavaCollection).when(view).tokens()
    view
  }

  def groupCoordinator: GroupCoordinator = {
    val topic = new Properties
    topic.setProperty("cleanup.policy", "compact")
    topic.setProperty("compression.type", "producer")
    topic.setProperty("segment.bytes", config.groupCoordinatorConfig.offsetsTopicSegmentBytes.toString)
    val view = part(classOf[GroupCoordinator])
    answer(topic).when(view).groupMetadataTopicConfigs()
    view
  }

  private def directory(topicPartition: TopicPartition): Option[File] =
    config.logDirs.map(logDir => new File(new File(logDir).getAbsoluteFile, topicPartition.toString)).find(_.isDirectory)

  private def partition(topicPartition: TopicPartition): Option[Partition] = directory(topicPartition).map { _ =>
    val state = zooKeeper.getTopicPartitionState(topicPartition).map(_.leaderAndIsr)
    val view = part(classOf[Partition])
    answer(if (state.exists(_.leader == config.brokerId)) log(topicPartition) else None).when(view).leaderLogIfLocal
    answer(state.map(_.leader)).when(view).leaderReplicaIdOpt
    answer(state.map(_.leaderEpoch).getOrElse(-1)).when(view).getLeaderEpoch
    view
  }

  private def log(topicPartition: TopicPartition): Option[UnifiedLog] = directory(topicPartition).map { found =>
    val view = part(classOf[UnifiedLog])
    answer(found).when(view).dir
    wire.foreach { broker =>
      answer(broker.offset(topicPartition, EARLIEST_TIMESTAMP).getOrElse(-1L)).when(view).logStartOffset
      answer(broker.offset(topicPartition, LATEST_TIMESTAMP).getOrElse(-1L)).when(view).logEndOffset
      val producers = part(classOf[ProducerStateManager])
      answer {
        val entries = new util.HashMap[java.lang.Long, ProducerStateEntry]
        broker.producers(topicPartition).foreach(state => entries.put(state.producerId, entry(state)))
        entries
      }.when(producers).activeProducers
      answer(producers).when(view).producerStateManager
    }
    view
  }

  private def entry(state: ProducerState): ProducerStateEntry = {
    val view = part(classOf[ProducerStateEntry])
    answer(state.producerId).when(view).producerId
    answer(state.producerEpoch.toShort).when(view).producerEpoch
    answer(state.coordinatorEpoch).when(view).coordinatorEpoch
    answer(state.lastTimestamp).when(view).lastTimestamp
    view
  }
}

object BrokerView {
  /** A part of a server that has nothing to tell yet: a test that asks it fails, by an UnsupportedOperationException. */
  def part[Part](of: Class[Part]): Part = mock(of, new Answer[Any] {
    override def answer(call: InvocationOnMock): Any = call.getMethod.getName match {
      case name if name == "toString" || name.contains("$default$") => RETURNS_DEFAULTS.answer(call)
      case name => throw new UnsupportedOperationException(s"the test looks at ${of.getSimpleName}.$name of a server in its JVM")
    }
  })

  /** Begins to say what a part answers: `answer(value).when(part).method`. */
  def answer(value: => Any): org.mockito.stubbing.Stubber = doAnswer(_ => value)
}
