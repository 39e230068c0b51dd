package kafka.server

import java.io.{DataInputStream, DataOutputStream}
import java.net.Socket
import java.nio.ByteBuffer
import java.util.{Collections, Optional}

import org.apache.kafka.common.{TopicPartition, Uuid}
import org.apache.kafka.common.message.{DescribeLogDirsRequestData, DescribeProducersRequestData}
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

  /** The high watermark that this replica knows, also at a follower: a client that names its rack may read there. */
  def highWatermark(partition: TopicPartition): Option[Long] =
    offset(partition, ListOffsetsRequest.EARLIEST_TIMESTAMP).flatMap { start =>
      val wanted = new FetchRequest.PartitionData(Uuid.ZERO_UUID, start, -1L, 1, Optional.empty[Integer]())
      val request = FetchRequest.Builder.forConsumer(11.toShort, 0, 0, Collections.singletonMap(partition, wanted)).build(11)
      val answered = ask[FetchResponse](request).responseData(Collections.emptyMap(), 11).asScala
      answered.get(partition).filter(_.errorCode == 0).map(_.highWatermark)
    }

  /** The log directories, and whether the broker uses them. */
  def logDirectories: Map[String, Boolean] = {
    val request = new DescribeLogDirsRequest.Builder(new DescribeLogDirsRequestData().setTopics(null)).build(1)
    ask[DescribeLogDirsResponse](request).data.results.asScala.map(found => found.logDir -> (found.errorCode == 0)).toMap
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
