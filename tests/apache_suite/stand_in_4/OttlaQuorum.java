package ottla.suite;

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataCache;

import org.mockito.Mockito;

/**
 * The brokers of a test that is older than ClusterInstance, in processes of their own. Its controller is in this JVM, and no broker knows it.
 */
public final class OttlaQuorum {
    private static final int BROKERS = 3;
    private static final Set<String> OF_A_QUORUM = Set.of(
        "process.roles", "node.id", "broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map",
        "inter.broker.listener.name", "log.dir", "log.dirs", "metadata.log.dir", "unstable.api.versions.enable",
        "unstable.feature.versions.enable", "server.max.startup.time.ms"
    );

    private final File directory = Scratch.directory();
    private final List<OttlaNode> nodes = new ArrayList<>();

    public KafkaBroker broker(KafkaConfig config, boolean startup) {
        Map<String, String> settings = new HashMap<>();
        config.originals().forEach((key, value) -> {
            if (!OF_A_QUORUM.contains(key) && !key.startsWith("controller.")) {
                settings.put(key, String.valueOf(value));
            }
        });
        ClusterConfig cluster = ClusterConfig.defaultBuilder().setBrokers(BROKERS).setServerProperties(settings)
            .setBrokerListenerName(ListenerName.normalised("PLAINTEXT")).build();
        OttlaNode node = new OttlaNode(config.nodeId(), cluster, directory);
        nodes.add(node);
        if (startup) {
            node.start();
        }
        return server(BrokerView.of(node, () -> Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, node.address()))));
    }

    public void shutdown() {
        nodes.forEach(OttlaNode::kill);
    }

    /** The view, as a broker whose metadata are those of any controller. */
    private static BrokerServer server(KafkaBroker view) {
        MetadataLoader loader = Mockito.mock(MetadataLoader.class);
        Mockito.when(loader.lastAppliedOffset()).thenReturn(Long.MAX_VALUE);
        SharedServer shared = Mockito.mock(SharedServer.class);
        Mockito.when(shared.loader()).thenReturn(loader);
        BrokerServer server = delegating(BrokerServer.class, KafkaBroker.class, view);
        Mockito.doReturn(shared).when(server).sharedServer();
        Mockito.doReturn(delegating(KRaftMetadataCache.class, MetadataCache.class, view.metadataCache())).when(server).metadataCache();
        KafkaApis processor = Mockito.mock(KafkaApis.class);
        Mockito.when(processor.metadataCache()).thenReturn(view.metadataCache());
        Mockito.doReturn(processor).when(server).dataPlaneRequestProcessor();
        return server;
    }

    /** An object of a class of Apache Kafka that does as an object of its interface does. */
    private static <T, U extends T> U delegating(Class<U> type, Class<T> face, T to) {
        return Mockito.mock(type, call -> {
            if (call.getMethod().getName().equals("toString")) {
                return to.toString();
            }
            try {
                return face.getMethod(call.getMethod().getName(), call.getMethod().getParameterTypes()).invoke(to, call.getArguments());
            } catch (InvocationTargetException failure) {
                throw failure.getCause();
            }
        });
    }
}
