package kafka.server

import java.io.{DataInputStream, DataOutputStream}
import java.net.Socket
import java.nio.ByteBuffer
import java.util.Collections

import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.message.DescribeProducersRequestData
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequest
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState
import org.apache.kafka.common.message.ListOffsetsRequestData.{ListOffsetsPartition, ListOffsetsTopic}
import org.apache.kafka.common.requests._
import org.apache.kafka.common.utils.Utils

import scala.jdk.CollectionConverters._
import scala.util.Using

/** Asks one Ottla over a listener without authentication. Throws IOException when it does not answer. */
class Wire(port: Int) {
  /** A topic as the broker knows it; None while it does not, or while the topic has an error. */
  def topic(name: String): Option[MetadataResponse.TopicMetadata] = {
    val request = new MetadataRequest.Builder(Collections.singletonList(name), false).build(9)
    ask[MetadataResponse](request).topicMetadata.asScala.find(topic => topic.topic == name && topic.error.code == 0)
  }

  /** The offset of this replica for a timestamp of ListOffsets, also at a follower; None if it has no such replica. */
  def offset(partition: TopicPartition, timestamp: Long): Option[Long] = {
    val wanted = new ListOffsetsPartition().setPartitionIndex(partition.partition).setTimestamp(timestamp)
    val topics = Collections.singletonList(new ListOffsetsTopic().setName(partition.topic).setPartitions(Collections.singletonList(wanted)))
    val request = ListOffsetsRequest.Builder.forReplica(3, ListOffsetsRequest.DEBUGGING_REPLICA_ID).setTargetTimes(topics).build(3)
    ask[ListOffsetsResponse](request).topics.asScala.flatMap(_.partitions.asScala).find(_.errorCode == 0).map(_.offset)
  }

  /** The producers that the leader knows. */
  def producers(partition: TopicPartition): Seq[ProducerState] = {
    val topic = new TopicRequest().setName(partition.topic).setPartitionIndexes(Collections.singletonList(partition.partition))
    val data = new DescribeProducersRequestData().setTopics(Collections.singletonList(topic))
    val response = ask[DescribeProducersResponse](new DescribeProducersRequest.Builder(data).build(0))
    response.data.topics.asScala.flatMap(_.partitions.asScala).flatMap(_.activeProducers.asScala).toSeq
  }

  private def ask[Response <: AbstractResponse](request: AbstractRequest): Response =
    Using.resource(new Socket("localhost", port))(answer(_, request)).asInstanceOf[Response]

  private def answer(socket: Socket, request: AbstractRequest): AbstractResponse = {
    socket.setSoTimeout(10000)
    val bytes = Utils.toArray(request.serializeWithHeader(new RequestHeader(request.apiKey, request.version, "apache-suite", 1)))
    val out = new DataOutputStream(socket.getOutputStream)
    out.writeInt(bytes.length)
    out.write(bytes)
    out.flush()
    val in = new DataInputStream(socket.getInputStream)
    val received = new Array[Byte](in.readInt())
    in.readFully(received)
    val buffer = ByteBuffer.wrap(received)
    ResponseHeader.parse(buffer, request.apiKey.responseHeaderVersion(request.version))
    AbstractResponse.parseResponse(request.apiKey, buffer, request.version)
  }
}
