package kafka.server

import java.io.File
import java.nio.file.Files
import java.util.Properties
import java.util.concurrent.ConcurrentHashMap

import kafka.cluster.Partition
import kafka.controller._
import kafka.log.{LogManager, UnifiedLog}
import kafka.zk.{DelegationTokensZNode, KafkaZkClient}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.NotLeaderOrFollowerException
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache
import org.apache.kafka.common.utils.Utils
import org.apache.kafka.coordinator.group.GroupCoordinator
import org.mockito.ArgumentMatchers.{any, anyBoolean, anyString}
import org.mockito.Mockito.{RETURNS_DEFAULTS, doAnswer, mock}
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

import scala.jdk.CollectionConverters._

/**
 * Answers tests that look into the parts of a Kafka server. The facts come from ZooKeeper, from the broker's data directories, and from
 * the broker itself where it can be asked without authentication.
 */
class BrokerView(config: KafkaConfig, zooKeeper: KafkaZkClient, wire: Option[Wire], isRunning: () => Boolean) {
  import BrokerView.{CheckpointMs, answer, logDirectories, part}

  logDirectories.put(config.brokerId, config.logDirs.map(new File(_).getAbsoluteFile).toSeq)

  def controller: KafkaController = {
    val view = part(classOf[KafkaController])
    answer(isRunning() && zooKeeper.getControllerId.contains(config.brokerId)).when(view).isActive
    answer(brokers.collectFirst { case (broker, epoch) if broker.id == config.brokerId => epoch }.getOrElse(-1L)).when(view).brokerEpoch
    answer(zooKeeper.getControllerEpoch.fold(0)(_._1)).when(view).epoch
    answer {
      val context = new ControllerContext
      context.setLiveBrokers(brokers)
      zooKeeper.getTopicIdsForTopics(zooKeeper.getAllTopicsInCluster()).foreach { case (topic, id) =>
        context.topicIds(topic) = id
        context.topicNames(id) = topic
        addReplicas(context, topic)
      }
      context
    }.when(view).controllerContext
    view
  }

  private def brokers = zooKeeper.getAllBrokerAndEpochsInCluster

  /** Adds the replicas of a topic with their states. A controller tells no one which replicas are deleted: their directories show it. */
  private def addReplicas(context: ControllerContext, topic: String): Unit = {
    val isDeleted = zooKeeper.isTopicMarkedForDeletion(topic)
    val offline = wire.flatMap(_.topic(topic)).fold(Set.empty[(Int, Int)]) { known =>
      known.partitionMetadata.asScala.flatMap(found => found.offlineReplicaIds.asScala.map(id => (found.partition, id.intValue))).toSet
    }
    zooKeeper.getFullReplicaAssignmentForTopics(Set(topic)).foreach { case (topicPartition, assignment) =>
      context.updatePartitionFullReplicaAssignment(topicPartition, assignment)
      assignment.replicas.foreach { id =>
        val state =
          if (!context.liveBrokerIds(id) || offline((topicPartition.partition, id))) OfflineReplica
          else if (isDeleted && directory(topicPartition, logDirectories.get(id)).isEmpty) ReplicaDeletionSuccessful
          else OnlineReplica
        context.putReplicaState(PartitionAndReplica(topicPartition, id), state)
      }
    }
  }

  def logManager: LogManager = {
    val view = part(classOf[LogManager])
    doAnswer(call => log(call.getArgument[TopicPartition](0))).when(view).getLog(any(), anyBoolean())
    doAnswer(call => logsOf(call.getArgument[String](0))).when(view).logsByTopic(anyString())
    doAnswer(call => isOnline(call.getArgument[String](0))).when(view).isLogDirOnline(anyString())
    answer(config.logDirs.map(new File(_).getAbsoluteFile)).when(view).liveLogDirs
    view
  }

  def replicaManager(metadataCache: MetadataCache): ReplicaManager = {
    val view = part(classOf[ReplicaManager])
    val logs = logManager
    answer(logs).when(view).logManager
    answer(metadataCache).when(view).metadataCache
    doAnswer(call => if (isRunning()) partition(call.getArgument[TopicPartition](0)) else None).when(view).onlinePartition(any())
    doAnswer(call => partition(call.getArgument[TopicPartition](0)).fold[HostedPartition](HostedPartition.None)(HostedPartition.Online(_)))
      .when(view).getPartition(any())
    doAnswer(call => if (isRunning()) log(call.getArgument[TopicPartition](0)) else None).when(view).localLog(any())
    doAnswer(call => log(call.getArgument[TopicPartition](0)).getOrElse(throw new NotLeaderOrFollowerException()))
      .when(view).localLogOrException(any())
    answer { Thread.sleep(CheckpointMs); null }.when(view).checkpointHighWatermarks()
    doAnswer(call => breakDirectory(call.getArgument[String](0))).when(view).handleLogDirFailure(anyString(), anyBoolean())
    view
  }

  /** Puts a file in the place of a log directory, which the broker notices at the next checkpoint. */
  private def breakDirectory(path: String): AnyRef = {
    Utils.delete(new File(path))
    Files.createFile(new File(path).toPath)
    Thread.sleep(CheckpointMs)
    null
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

  private def isOnline(path: String): Boolean = wire.exists(_.logDirectories.getOrElse(path, false))

  private def directory(topicPartition: TopicPartition, logDirs: Seq[File]): Option[File] =
    logDirs.map(new File(_, topicPartition.toString)).find(_.isDirectory)

  private def log(topicPartition: TopicPartition): Option[UnifiedLog] =
    directory(topicPartition, logDirectories.get(config.brokerId)).map(LogView(_, topicPartition, wire))

  private def logsOf(topic: String): Seq[UnifiedLog] =
    (0 until zooKeeper.getTopicPartitionCount(topic).getOrElse(0)).flatMap(number => log(new TopicPartition(topic, number)))

  private def partition(topicPartition: TopicPartition): Option[Partition] =
    directory(topicPartition, logDirectories.get(config.brokerId)).map { _ =>
      val state = zooKeeper.getTopicPartitionState(topicPartition).map(_.leaderAndIsr)
      val view = part(classOf[Partition])
      answer(if (state.exists(_.leader == config.brokerId)) log(topicPartition) else None).when(view).leaderLogIfLocal
      answer(state.map(_.leader)).when(view).leaderReplicaIdOpt
      answer(state.map(_.leaderEpoch).getOrElse(-1)).when(view).getLeaderEpoch
      answer(state.fold(Set.empty[Int])(_.isr.toSet)).when(view).inSyncReplicaIds
      view
    }
}

object BrokerView {
  /** Pause in which a broker writes its checkpoints: OttlaProcess sets their interval to half of it. */
  private val CheckpointMs = 1000L
  private val logDirectories = new ConcurrentHashMap[Int, Seq[File]]

  /** A part of a server that has nothing to tell yet: a test that asks it fails, by an UnsupportedOperationException.
    * `byName` answers methods that are not visible from here. */
  def part[Part](of: Class[Part], byName: PartialFunction[String, Any] = PartialFunction.empty): Part = mock(of, new Answer[Any] {
    override def answer(call: InvocationOnMock): Any = call.getMethod.getName match {
      case name if byName.isDefinedAt(name) => byName(name)
      case name if name == "toString" || name.contains("$default$") => RETURNS_DEFAULTS.answer(call)
      case name => throw new UnsupportedOperationException(s"the test looks at ${of.getSimpleName}.$name of a server in its JVM")
    }
  })

  /** Begins to say what a part answers: `answer(value).when(part).method`. */
  def answer(value: => Any): org.mockito.stubbing.Stubber = doAnswer(_ => value)
}
