package kafka.server

import java.io.File
import java.util
import java.util.Collections

import kafka.log.UnifiedLog
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState
import org.apache.kafka.common.record.FileRecords
import org.apache.kafka.common.requests.ListOffsetsRequest.{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP}
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache
import org.apache.kafka.storage.internals.log._
import org.mockito.ArgumentMatchers.{anyBoolean, anyInt, anyLong}
import org.mockito.Mockito.doAnswer

import scala.jdk.CollectionConverters._

/** Answers tests that look into the log of a replica. The facts come from its directory, and its offsets from the broker. */
object LogView {
  import BrokerView.{answer, part}

  /** Pause in which a broker writes the leader epochs that it has just learned. */
  private val EpochsMs = 300L

  def apply(directory: File, topicPartition: TopicPartition, wire: Option[Wire]): UnifiedLog = {
    val view = part(classOf[UnifiedLog])
    answer(directory).when(view).dir
    answer(null).when(view).flush(anyBoolean())
    answer(segments(directory).last).when(view).activeSegment
    answer(segments(directory).asJava).when(view).logSegments
    answer(segments(directory).size).when(view).numberOfSegments
    answer(Some(epochs(directory))).when(view).leaderEpochCache
    wire.foreach { broker =>
      answer(broker.offset(topicPartition, EARLIEST_TIMESTAMP).getOrElse(-1L)).when(view).logStartOffset
      answer(localStart(directory, broker.offset(topicPartition, EARLIEST_TIMESTAMP).getOrElse(-1L))).when(view).localLogStartOffset()
      answer(broker.offset(topicPartition, LATEST_TIMESTAMP).getOrElse(-1L)).when(view).logEndOffset
      answer(broker.highWatermark(topicPartition).getOrElse(-1L)).when(view).highWatermark
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

  private def segments(directory: File): Seq[LogSegment] =
    directory.listFiles.filter(_.getName.endsWith(".log")).sortBy(_.getName).toSeq.map(segment)

  /** The first offset that is here; records before it are in the remote store only. */
  private def localStart(directory: File, logStart: Long): Long = logStart.max(segments(directory).head.baseOffset)

  private def segment(file: File): LogSegment = {
    val view = part(classOf[LogSegment])
    answer(file.getName.stripSuffix(".log").toLong).when(view).baseOffset
    answer(FileRecords.open(file, false)).when(view).log
    doAnswer(call => from(file, call.getArgument[Long](0))).when(view).read(anyLong(), anyInt())
    view
  }

  /** The batches of a segment from the one with this offset on; null if there is none. */
  private def from(file: File, offset: Long): FetchDataInfo = {
    val records = FileRecords.open(file, false)
    val found = records.batches.asScala.find(_.lastOffset >= offset)
    found.map(batch => new FetchDataInfo(new LogOffsetMetadata(offset), records.slice(batch.position, records.sizeInBytes))).orNull
  }

  private def epochs(directory: File): LeaderEpochFileCache = {
    val view = part(classOf[LeaderEpochFileCache])
    val file = LeaderEpochCheckpointFile.newFile(directory)
    answer {
      Thread.sleep(EpochsMs)
      if (file.exists) new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)).read() else Collections.emptyList[EpochEntry]()
    }.when(view).epochEntries
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
