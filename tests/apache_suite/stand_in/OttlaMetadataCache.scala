package kafka.server

import java.io.IOException

import kafka.server.metadata.ZkMetadataCache
import kafka.zk.KafkaZkClient
import org.apache.kafka.admin.BrokerMetadata
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataPartitionState
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.{Node, TopicPartition, Uuid}

import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * Answers tests that ask what a broker knows of the cluster. Topics come from the broker itself where it can be asked without
 * authentication. Otherwise they come from ZooKeeper, and the answer comes a moment later, when the broker knows them, too.
 */
class OttlaMetadataCache(config: KafkaConfig, zooKeeper: KafkaZkClient, wire: Option[Wire])
    extends ZkMetadataCache(config.brokerId, config.interBrokerProtocolVersion, BrokerFeatures.createEmpty()) {
  private val PropagationMs = 250L

  override def getPartitionInfo(topic: String, partition: Int): Option[UpdateMetadataPartitionState] =
    if (wire.isDefined) told(topic).flatMap(_.partitionMetadata.asScala.find(_.partition == partition)).map { found =>
      new UpdateMetadataPartitionState().setTopicName(topic).setPartitionIndex(partition).setLeader(found.leaderId.orElse(-1))
        .setLeaderEpoch(found.leaderEpoch.orElse(-1)).setIsr(found.inSyncReplicaIds).setReplicas(found.replicaIds)
    }
    else {
      val topicPartition = new TopicPartition(topic, partition)
      val stored = zooKeeper.getTopicPartitionState(topicPartition).map(_.leaderAndIsr)
      if (stored.isDefined) Thread.sleep(PropagationMs)
      stored.map { state =>
        new UpdateMetadataPartitionState().setTopicName(topic).setPartitionIndex(partition).setLeader(state.leader)
          .setLeaderEpoch(state.leaderEpoch).setIsr(state.isr.map(Integer.valueOf).asJava)
          .setReplicas(zooKeeper.getReplicasForPartition(topicPartition).map(Integer.valueOf).asJava)
      }
    }

  override def numPartitions(topic: String): Option[Int] =
    if (wire.isDefined) told(topic).map(_.partitionMetadata.size)
    else zooKeeper.getTopicPartitionCount(topic).filter { count =>
      zooKeeper.getTopicPartitionStates((0 until count).map(new TopicPartition(topic, _))).size == count
    }

  override def contains(topic: String): Boolean = numPartitions(topic).isDefined

  override def getTopicPartitions(topic: String): Set[TopicPartition] =
    (0 until numPartitions(topic).getOrElse(0)).map(new TopicPartition(topic, _)).toSet

  override def getAllTopics(): Set[String] = zooKeeper.getAllTopicsInCluster().toSet

  override def hasAliveBroker(brokerId: Int): Boolean = zooKeeper.getBroker(brokerId).isDefined

  override def getAliveBrokerNode(brokerId: Int, listener: ListenerName): Option[Node] =
    zooKeeper.getBroker(brokerId).map(_.node(listener))

  override def getAliveBrokers(): Iterable[BrokerMetadata] =
    zooKeeper.getAllBrokersInCluster.map(broker => new BrokerMetadata(broker.id, java.util.Optional.empty[String]()))

  override def getTopicId(topic: String): Uuid = zooKeeper.getTopicIdsForTopics(Set(topic)).getOrElse(topic, Uuid.ZERO_UUID)

  override def getControllerId: Option[CachedControllerId] = zooKeeper.getControllerId.map(ZkCachedControllerId(_))

  override def getPartitionLeaderEndpoint(topic: String, partition: Int, listener: ListenerName): Option[Node] =
    zooKeeper.getTopicPartitionState(new TopicPartition(topic, partition)).map(_.leaderAndIsr.leader)
      .flatMap(zooKeeper.getBroker).map(_.node(listener))

  private def told(topic: String) = Try(wire.flatMap(_.topic(topic))).recover { case _: IOException => None }.get
}
