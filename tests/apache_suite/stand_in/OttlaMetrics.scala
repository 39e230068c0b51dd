package kafka.server

import java.io.IOException
import java.net.URI
import java.nio.file.{Files, Path}
import java.util
import java.util.concurrent.ConcurrentHashMap

import com.yammer.metrics.core.{Gauge, Histogram, Meter, Metric, MetricName => YammerName, MetricsRegistry, Timer}
import kafka.server.BrokerView.{answer, part}
import org.apache.kafka.common.MetricName
import org.apache.kafka.common.metrics.{Gauge => KafkaGauge, KafkaMetric, MetricConfig, Metrics}
import org.apache.kafka.common.utils.Time
import org.apache.kafka.server.metrics.KafkaYammerMetrics

import scala.io.Source
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

/**
 * Answers tests that look at the metrics of a server. The numbers are those that the broker serves for Prometheus.
 *
 * An MBean with a name is in the registry that all servers of a JVM share, where their values are added up. The others, whose attributes
 * are metrics, are in the registry of the server.
 */
class OttlaMetrics(port: Int) extends Metrics {
  import OttlaMetrics._

  private var read = 0L
  private var last = Seq.empty[Sample]

  override def metrics(): util.Map[MetricName, KafkaMetric] = recent.flatMap { sample =>
    sample.family.attribute(sample).map { name =>
      val value: KafkaGauge[java.lang.Double] = (_, _) => latest(sample)
      name -> new KafkaMetric(new Object, name, value, new MetricConfig, Time.SYSTEM)
    }
  }.toMap.asJava

  override def metric(name: MetricName): KafkaMetric = metrics().get(name)

  /** The sum of the samples with the name of a family. */
  def total(name: String): Double = samples.filter(_.family.name == name).map(_.value).sum

  private def latest(sample: Sample): Double =
    recent.find(each => each.family == sample.family && each.labels == sample.labels).fold(Double.NaN)(_.value)

  /** All numbers of the last moment: tests ask again and again. */
  private def recent: Seq[Sample] = synchronized {
    if (read == 0 || System.nanoTime - read > RecentNs) {
      last = samples
      read = System.nanoTime
    }
    last
  }

  /** All numbers now; none if the broker does not answer. */
  private[server] def samples: Seq[Sample] =
    try Using.resource(Source.fromURL(new URI(s"http://127.0.0.1:$port/metrics").toURL))(_.getLines().flatMap(parsed).toList)
    catch { case _: IOException => Nil }
}

object OttlaMetrics {
  private val RecentNs = 20000000L
  /** Gauges of whole numbers that are of type Double in Apache Kafka; others are integers. */
  private val Doubles = Set("ExpiredConnectionsKilledCount")
  private val Line = """(\w+)(?:\{(.*)\})? (\S+)""".r
  private val Label = """(\w+)="((?:[^"\\]|\\.)*)"""".r
  private val running = ConcurrentHashMap.newKeySet[OttlaMetrics]()
  private val shown = new ConcurrentHashMap[String, (YammerName, Metric)]
  private val families: Map[String, Family] = Files.readAllLines(Path.of(System.getProperty("ottla.metrics"))).asScala
    .map(_.split("\t", 4)).map { case Array(name, kind, labels, mbean) => name -> Family(name, kind, labels, mbean) }.toMap

  /** A metric with all its labels. The MBean is a pattern with its properties in alphabetical order. */
  private[server] case class Family(name: String, kind: String, labels: String, mbean: String) {
    private val Array(domain, pattern) = mbean.split(":", 2)
    private val properties = pattern.split(",").map(_.split("=", 2)).map { case Array(key, value) => key -> value }.toMap
    private def key(label: String) = properties.keys.find(plain(_) == plain(label)).getOrElse(label)

    def yammer(sample: Sample): Option[YammerName] = properties.get("name").map { name =>
      val tags = new util.LinkedHashMap[String, String]
      sample.labels.foreach { case (label, value) => tags.put(key(label), value) }
      KafkaYammerMetrics.getMetricName(domain, properties("type"), name, tags)
    }

    def attribute(sample: Sample): Option[MetricName] = if (properties.contains("name")) None else {
      val isQuota = name.startsWith("kafka_server_quota_")
      val group = sample.labels.collectFirst { case ("resource", resource) => resource }.getOrElse(properties("type"))
      val prefix = if (isQuota) "kafka_server_quota_" else s"$domain.${properties("type")}_".replaceAll("[.-]", "_")
      val tags = sample.labels.filter { case (label, value) => label != "resource" && (isQuota || value.nonEmpty) }
        .map { case (label, value) => (if (label == "clientId") "client-id" else label) -> value }
      Some(new MetricName(name.stripPrefix(prefix).replace('_', '-'), group, "", tags.toMap.asJava))
    }

    private def plain(word: String) = word.replaceAll("[-_]", "").toLowerCase
  }

  /** One number: of a summary the count, the sum, or in `largest` its highest quantile. */
  private[server] case class Sample(
    family: Family, labels: Seq[(String, String)], value: Double, sum: Double = 0, largest: Double = Double.NaN
  )

  def add(metrics: OttlaMetrics): Unit = running.add(metrics)

  def remove(metrics: OttlaMetrics): Unit = running.remove(metrics)

  private def parsed(line: String): Option[Sample] = line match {
    case Line(name, labels, number) =>
      val found = Label.findAllMatchIn(Option(labels).getOrElse("")).map(each => each.group(1) -> each.group(2)).toSeq
      val value = Try(number.toDouble).getOrElse(if (number.endsWith("inf")) Double.PositiveInfinity else Double.NaN)
      val whole = families.get(name)
      whole.filter(_.kind != "summary").map(Sample(_, found, value))
        .orElse(whole.filter(_ => found.lastOption.exists(_._2 == "0.999")).map(Sample(_, found.init, 0, largest = value)))
        .orElse(Option.when(name.endsWith("_count"))(name.stripSuffix("_count")).flatMap(families.get).map(Sample(_, found, value)))
        .orElse(Option.when(name.endsWith("_sum"))(name.stripSuffix("_sum")).flatMap(families.get).map(Sample(_, found, 0, sum = value)))
    case _ => None
  }

  private def samplesOf(name: YammerName): Seq[Sample] =
    running.asScala.toSeq.flatMap(_.samples).filter(sample => sample.family.yammer(sample).exists(_.getMBeanName == name.getMBeanName))

  private def yammer(): Iterable[(YammerName, Metric)] =
    running.asScala.flatMap(_.samples).flatMap(sample => sample.family.yammer(sample).map(sample.family -> _))
      .map { case (family, name) => shown.computeIfAbsent(name.getMBeanName, _ => name -> metric(family, name)) }

  /** A metric that asks the brokers each time. */
  private def metric(family: Family, name: YammerName): Metric = {
    def sum = samplesOf(name).map(_.value).sum
    // A summary has no maximum. The highest quantile may be below the largest value, and so may be the mean.
    def mean = samplesOf(name).map(_.sum).sum / sum.max(1)
    def largest = mean.max(samplesOf(name).map(_.largest).filterNot(_.isNaN).maxOption.getOrElse(0.0))
    family.kind match {
      case "counter" => val meter = part(classOf[Meter]); answer(sum.toLong).when(meter).count; meter
      case "summary" if name.getName.contains("RateAndTime") =>
        val timer = part(classOf[Timer]); answer(sum.toLong).when(timer).count; timer
      case "summary" =>
        val histogram = part(classOf[Histogram])
        answer(sum.toLong).when(histogram).count
        answer(largest).when(histogram).max
        answer(0.0).when(histogram).min
        histogram
      case _ => new Gauge[Any] {
        override def value(): Any =
          if (Doubles(name.getName) || !sum.isWhole || sum.abs > Int.MaxValue) Double.box(sum) else Int.box(sum.toInt)
      }
    }
  }

  // The shared registry is a field of an instance, and every test asks this instance.
  locally {
    val registry = classOf[KafkaYammerMetrics].getDeclaredField("metricsRegistry")
    registry.setAccessible(true)
    registry.set(KafkaYammerMetrics.INSTANCE, new MetricsRegistry {
      private def own = super.allMetrics()

      // A test may keep the map, or its keys, from before it starts a server.
      override def allMetrics(): util.Map[YammerName, Metric] = new util.AbstractMap[YammerName, Metric] {
        override def entrySet(): util.Set[util.Map.Entry[YammerName, Metric]] = {
          val all = new util.HashMap[YammerName, Metric](own)
          yammer().foreach { case (name, metric) => all.put(name, metric) }
          all.entrySet
        }
      }
    })
  }
}
