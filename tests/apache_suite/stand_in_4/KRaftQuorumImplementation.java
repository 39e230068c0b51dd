package kafka.server;

import java.io.File;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

import kafka.utils.Logging;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.fault.FaultHandler;

import ottla.suite.OttlaQuorum;

import scala.Option;

/** Takes the place of the class of Apache Kafka's QuorumTestHarness that creates brokers. */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final ControllerServer controllerServer;
    private final String clusterId;
    private final OttlaQuorum quorum = new OttlaQuorum();

    public KRaftQuorumImplementation(
        ControllerServer controllerServer,
        FaultHandlerFactory faultHandlerFactory,
        File metadataDir,
        CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture,
        String clusterId,
        Logging log,
        FaultHandler faultHandler
    ) {
        this.controllerServer = controllerServer;
        this.clusterId = clusterId;
    }

    public ControllerServer controllerServer() {
        return controllerServer;
    }

    public String clusterId() {
        return clusterId;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        return quorum.broker(config, startup);
    }

    @Override
    public void shutdown() {
        quorum.shutdown();
        controllerServer.shutdown();
    }
}
