package kafka.server

import java.io.{File, FileOutputStream}
import java.net.{InetSocketAddress, ServerSocket, Socket}
import java.nio.file.Files
import java.util.Properties
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import org.apache.kafka.common.KafkaException
import org.apache.kafka.common.config.types.Password

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try, Using}

/**
 * Runs one Ottla with the configuration that a test gives its server. The ports of its listeners stay the same over restarts.
 *
 * The process ends when the pipe of its standard input does, so that it does not outlive this JVM.
 */
class OttlaProcess(config: KafkaConfig) {
  private val ports = mutable.Map.empty[String, Int]
  private val log = new File(System.getProperty("ottla.logs"), s"${OttlaProcess.count()}-${config.brokerId}.log")
  private var process: Option[Process] = None

  /** The port where the broker serves its metrics. */
  lazy val metricsPort: Int = OttlaProcess.freePort()

  /** The port of a listener that the broker started with. */
  def port(listener: String): Option[Int] = ports.get(listener.toUpperCase)

  /** Starts the broker; returns when it is registered and its ports are open. Throws KafkaException if it ends, or takes too long. */
  def start(isRegistered: () => Boolean): Unit = {
    val file = Files.createTempFile("server", ".properties").toFile
    Using.resource(new FileOutputStream(file))(properties().store(_, null))
    val builder = new ProcessBuilder(System.getProperty("ottla.python"), "-P", System.getProperty("ottla.serve"), file.getPath)
    environment().foreach { case (name, value) => builder.environment.put(name, value) }
    log.getParentFile.mkdirs()
    val started = builder.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start()
    OttlaProcess.running.add(started)
    process = Some(started)
    val deadline = System.currentTimeMillis + OttlaProcess.StartMs
    while (!(isRegistered() && ports.values.forall(isOpen))) {
      if (!started.isAlive) {
        stop()
        throw new KafkaException("the broker ended: " + Files.readAllLines(log.toPath).asScala.takeRight(3).mkString("; "))
      }
      if (System.currentTimeMillis > deadline) throw new KafkaException("the broker is not ready")
      Thread.sleep(50)
    }
  }

  /** Stops the broker as SIGTERM does. */
  def stop(): Unit = {
    process.foreach { running =>
      running.toHandle.destroy() // Process.destroy closes the pipe at once, which would kill the broker
      if (!running.waitFor(OttlaProcess.StopMs, TimeUnit.MILLISECONDS)) running.destroyForcibly().waitFor()
      OttlaProcess.running.remove(running)
    }
    process = None
  }

  private def properties(): Properties = {
    val result = new Properties
    config.originalsFromThisConfig.asScala.foreach { case (key, value) => if (value != null) result.setProperty(key, text(value)) }
    result.setProperty("ottla.metrics.listener", s"127.0.0.1:$metricsPort")
    // Tests order the checkpoint of a server, which comes by itself here.
    result.setProperty("replica.high.watermark.checkpoint.interval.ms", "500")
    // Java classes that only this JVM has.
    Seq("metric.reporters", "auto.include.jmx.reporter").foreach(result.remove)
    result.stringPropertyNames.asScala.filter(_.endsWith("principal.builder.class")).foreach(result.remove)
    builder.flatMap(OttlaProcess.Rules.get).foreach(result.setProperty("ssl.principal.mapping.rules", _))
    for (key <- Seq("listeners", "advertised.listeners"); value <- Option(result.getProperty(key)))
      result.setProperty(key, withPorts(value))
    Option(System.getProperty("java.security.auth.login.config")).foreach(result.setProperty("ottla.jaas.file", _))
    result
  }

  private def environment(): Map[String, String] = {
    val imitated = builder.filterNot(OttlaProcess.Rules.contains).map("OTTLA_SUITE_PRINCIPALS" -> _)
    val kerberos = Option(System.getProperty("java.security.krb5.conf")).map("KRB5_CONFIG" -> _)
    Map.from(imitated) ++ kerberos
  }

  private def builder: Option[String] =
    config.originals.asScala.collectFirst { case (key, value) if key.endsWith("principal.builder.class") => text(value) }

  private def text(value: Any): String = value match {
    case password: Password => password.value
    case list: java.util.List[_] => list.asScala.map(text).mkString(",")
    case ofClass: Class[_] => ofClass.getName
    case other => other.toString
  }

  private def withPorts(listeners: String): String = listeners.split(",").filter(_.nonEmpty).map { entry =>
    val Array(name, address) = entry.split("://", 2)
    val colon = address.lastIndexOf(':')
    val wanted = address.substring(colon + 1).toInt
    val port = ports.getOrElseUpdate(name.toUpperCase, if (wanted == 0) OttlaProcess.freePort() else wanted)
    s"$name://${address.substring(0, colon)}:$port"
  }.mkString(",")

  private def isOpen(port: Int): Boolean =
    Try(Using.resource(new Socket)(_.connect(new InetSocketAddress("localhost", port), 500))).isSuccess
}

object OttlaProcess {
  private val StartMs = 60000L
  private val StopMs = 40000L
  /** Principal builders of tests, and rules that give the same principals. `serve.py` imitates others. */
  private val Rules = Map(
    "kafka.api.SslEndToEndAuthorizationTest$TestPrincipalBuilder" ->
      "RULE:^O=A server,.*$/server/,RULE:^O=A .*,CN=super-user$/server/,DEFAULT"
  )
  private val running = ConcurrentHashMap.newKeySet[Process]()
  private val candidates = mutable.Queue.from(System.getProperty("ottla.ports").split(",").map(_.toInt))

  Runtime.getRuntime.addShutdownHook(new Thread(() => running.forEach(_.destroyForcibly())))

  /** The number of the next broker. The extension of JUnit compares it before and after a test. */
  private def count(): Int = synchronized {
    val number = Integer.getInteger("ottla.started", 0) + 1
    System.setProperty("ottla.started", number.toString)
    number
  }

  /** A port of those that the program which started this JVM keeps for it. */
  private def freePort(): Int = synchronized {
    for (_ <- candidates.indices) {
      val port = candidates.dequeue()
      candidates.enqueue(port)
      Try(Using.resource(new ServerSocket)(_.bind(new InetSocketAddress("127.0.0.1", port)))) match {
        case Success(_) => return port
        case Failure(_) =>
      }
    }
    throw new KafkaException("no port is free")
  }
}
