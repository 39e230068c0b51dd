package kafka.server

import java.time.Duration
import java.util.{Arrays, Collections, List => JList, Properties}

import kafka.controller.KafkaController
import kafka.log.LogManager
import kafka.network.SocketServer
import kafka.security.authorizer.AclAuthorizer
import kafka.utils.JaasTestUtils
import kafka.zk.KafkaZkClient
import org.apache.kafka.common.KafkaException
import org.apache.kafka.common.metrics.Metrics
import org.apache.kafka.common.acl.{AclBinding, AclBindingFilter}
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.security.auth.SecurityProtocol
import org.apache.kafka.common.security.scram.ScramCredential
import org.apache.kafka.common.utils.Time
import org.apache.kafka.metadata.BrokerState
import org.apache.kafka.security.CredentialProvider
import org.apache.kafka.server.authorizer.{AuthorizableRequestContext, Authorizer, AuthorizerServerInfo}
import org.apache.zookeeper.client.ZKClientConfig
import org.mockito.ArgumentMatchers.any
import org.mockito.Mockito.doAnswer

/** Takes the place of the server that a test starts. The broker is a process of Ottla on the test's ZooKeeper. */
class OttlaServer(config: KafkaConfig, time: Time, enableForwarding: Boolean) extends KafkaServer(config, time, None, enableForwarding) {
  import BrokerView.{answer, part}
  import OttlaServer._

  private val process = new OttlaProcess(config)
  @volatile private var state = BrokerState.NOT_RUNNING
  @volatile private var zooKeeper: KafkaZkClient = _
  @volatile private var view: BrokerView = _
  private var configurations: Option[ZkConfigManager] = None

  override def brokerState: BrokerState = state
  override def clusterId: String = zooKeeper.getClusterId.orNull
  override def boundPort(listener: ListenerName): Int = process.port(listener.value).orElse(registeredPort(listener))
    .getOrElse(throw new KafkaException(s"no listener $listener"))
  override def kafkaController: KafkaController = view.controller
  override def logManager: LogManager = view.logManager
  override def replicaManager: ReplicaManager = view.replicaManager(metadataCache)
  override def isShutdown(): Boolean = state == BrokerState.NOT_RUNNING
  override def awaitShutdown(): Unit = ()

  /** The port of a listener that was added at run time. */
  private def registeredPort(listener: ListenerName): Option[Int] =
    zooKeeper.getBroker(config.brokerId).flatMap(_.endPoints.find(_.listenerName == listener)).map(_.port)

  override def startup(): Unit = {
    if (zooKeeper == null) {
      val anonymous = new ZKClientConfig
      zooKeeper = KafkaZkClient(config.zkConnect, isSecure = false, 15000, 10000, Int.MaxValue, Time.SYSTEM, "apache-suite", anonymous)
    }
    // Tests write into an empty ZooKeeper before they start a broker. Ottla takes such a tree for that of another program.
    zooKeeper.makeSurePersistentPathExists("/cluster")
    state = BrokerState.STARTING
    try process.start(() => zooKeeper.getBroker(config.brokerId).isDefined)
    catch { case failure: Throwable => shutdown(Duration.ZERO); throw failure }
    state = BrokerState.RUNNING
    show()
  }

  override def shutdown(timeout: Duration): Unit = {
    state = BrokerState.SHUTTING_DOWN
    process.stop()
    authorizer.foreach(_.close())
    authorizer = None
    if (metrics != null) OttlaMetrics.remove(metrics.asInstanceOf[OttlaMetrics])
    configurations.foreach(_.shutdown())
    configurations = None
    Option(quotaManagers).foreach(_.shutdown())
    quotaManagers = null
    config.dynamicConfig.clear()
    if (zooKeeper != null) zooKeeper.close()
    zooKeeper = null
    state = BrokerState.NOT_RUNNING
  }

  /** Fills in the parts of a server that tests look at. */
  private def show(): Unit = {
    val wire = wireWithoutAuthentication
    view = new BrokerView(config, zooKeeper, wire, () => state == BrokerState.RUNNING)
    metadataCache = new OttlaMetadataCache(config, zooKeeper, if (hasAuthorizer) None else wire)
    groupCoordinator = view.groupCoordinator
    tokenCache = view.tokenCache
    credentialProvider = knownUsers
    if (hasAuthorizer && authorizerClass.endsWith("AclAuthorizer") && authorizer.isEmpty) authorizer = Some(aclAuthorizer())
    val numbers = new OttlaMetrics(process.metricsPort)
    OttlaMetrics.add(numbers)
    metrics = numbers
    followConfigurations()
    val sockets = part(classOf[SocketServer], { case "connectionCount" => numbers.total(ConnectionCount).toInt })
    doAnswer(call => boundPort(call.getArgument[ListenerName](0))).when(sockets).boundPort(any())
    answer(config).when(sockets).config
    socketServer = sockets
    val handlers = part(classOf[KafkaApis])
    answer(config.brokerId).when(handlers).brokerId
    answer(metadataCache).when(handlers).metadataCache
    answer(clusterId).when(handlers).clusterId
    answer(authorizer).when(handlers).authorizer
    answer(quotaManagers).when(handlers).quotas
    dataPlaneRequestProcessor = handlers
  }

  /** Keeps quotas and dynamic configurations as ZooKeeper has them. The broker knows a change first: it is followed after a pause. */
  private def followConfigurations(): Unit = {
    quotaManagers = QuotaFactory.instantiate(config, new Metrics, time, "")
    config.dynamicConfig.initialize(Some(zooKeeper), None)
    val users = new CredentialProvider(Arrays.asList("SCRAM-SHA-256", "SCRAM-SHA-512"), tokenCache)
    val handlers = Map[String, ConfigHandler](
      "users" -> new UserConfigHandler(quotaManagers, users),
      "clients" -> new ClientIdConfigHandler(quotaManagers),
      "brokers" -> new BrokerConfigHandler(config, quotaManagers)
    )
    val others = Map[String, ConfigHandler]("topics" -> NoHandler, "ips" -> NoHandler)
    val following = new ZkConfigManager(zooKeeper, others ++ handlers.transform((_, handler) => new Pausing(handler)))
    following.startup()
    configurations = Some(following)
  }

  private def authorizerClass: String = Option(config.originals.get("authorizer.class.name")).fold("")(_.toString)

  private def hasAuthorizer: Boolean = authorizerClass.nonEmpty

  private def wireWithoutAuthentication: Option[Wire] =
    config.effectiveAdvertisedBrokerListeners.find(_.securityProtocol == SecurityProtocol.PLAINTEXT)
      .map(endPoint => new Wire(boundPort(endPoint.listenerName)))

  /** An authorizer that writes and reads the ACLs in ZooKeeper. It pauses after a change: the broker learns of it a moment later. */
  private def aclAuthorizer(): Authorizer = {
    val result = new AclAuthorizer {
      override def createAcls(client: AuthorizableRequestContext, acls: JList[AclBinding]) = pausing(super.createAcls(client, acls))
      override def deleteAcls(client: AuthorizableRequestContext, acls: JList[AclBindingFilter]) = pausing(super.deleteAcls(client, acls))
      private def pausing[Result](result: Result): Result = { Thread.sleep(500); result }
    }
    result.configure(config.originals)
    result.start(new AuthorizerServerInfo {
      override def clusterResource = null
      override def brokerId = config.brokerId
      override def endpoints = Collections.emptyList()
      override def interBrokerEndpoint = null
      override def earlyStartListeners = Collections.emptySet()
    })
    result
  }

  /** The users of the tests: a test waits until every broker knows them, and its clients try again until this one does. */
  private def knownUsers: CredentialProvider = {
    val mechanisms = Arrays.asList("SCRAM-SHA-256", "SCRAM-SHA-512")
    val result = new CredentialProvider(mechanisms, null)
    val credential = new ScramCredential(Array.emptyByteArray, Array.emptyByteArray, Array.emptyByteArray, 4096)
    mechanisms.forEach { mechanism =>
      val users = result.credentialCache.cache(mechanism, classOf[ScramCredential])
      Seq(JaasTestUtils.KafkaScramUser, JaasTestUtils.KafkaScramUser2, JaasTestUtils.KafkaScramAdmin).foreach(users.put(_, credential))
    }
    result
  }
}

object OttlaServer {
  private val ConnectionCount = "kafka_server_socket_server_metrics_connection_count"
  private val PauseMs = 300L

  private object NoHandler extends ConfigHandler {
    override def processConfigChanges(entityName: String, value: Properties): Unit = ()
  }

  private class Pausing(handler: ConfigHandler) extends ConfigHandler {
    override def processConfigChanges(entityName: String, value: Properties): Unit = {
      Thread.sleep(PauseMs)
      handler.processConfigChanges(entityName, value)
    }
  }
}
