package ottla.suite;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import kafka.network.SocketServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;

import org.mockito.Mockito;

/** Shows tests what they ask of a broker object: its configuration, its port, and the topics that it knows. */
final class BrokerView {
    private BrokerView() {
    }

    static KafkaBroker of(OttlaNode node, Supplier<Admin> admins) {
        return proxy(KafkaBroker.class, (self, method, arguments) -> switch (method.getName()) {
            case "config" -> configuration(node);
            case "boundPort" -> node.port();
            case "socketServer" -> socket(node);
            case "isShutdown" -> !node.isRunning();
            case "shutdown" -> {
                node.stop();
                yield null;
            }
            case "startup" -> {
                node.start();
                yield null;
            }
            case "awaitShutdown" -> null;
            case "metadataCache" -> metadata(admins);
            case "groupCoordinator" -> proxy(GroupCoordinator.class, (of, asked, given) -> switch (asked.getName()) {
                case "groupMetadataTopicConfigs" -> compacted();
                default -> throw missing(asked.getName());
            });
            default -> throw missing(method.getName());
        });
    }

    private static SocketServer socket(OttlaNode node) {
        return Mockito.mock(SocketServer.class, call -> {
            if (call.getMethod().getName().equals("boundPort")) {
                return node.port();
            }
            throw missing("socketServer." + call.getMethod().getName());
        });
    }

    private static Properties compacted() {
        Properties found = new Properties();
        found.setProperty("cleanup.policy", "compact");
        return found;
    }

    private static UnsupportedOperationException missing(String method) {
        return new UnsupportedOperationException("the broker is not in this JVM: " + method);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        InvocationHandler whole = (self, method, arguments) -> {
            if (method.getDeclaringClass() == Object.class) {
                return switch (method.getName()) {
                    case "equals" -> self == arguments[0];
                    case "hashCode" -> System.identityHashCode(self);
                    default -> type.getSimpleName() + " of Ottla";
                };
            }
            return handler.invoke(self, method, arguments);
        };
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, whole));
    }

    private static KafkaConfig configuration(OttlaNode node) {
        Map<String, String> found = new HashMap<>(node.settings());
        found.keySet().removeIf(key -> key.startsWith("ottla.") || key.equals("broker.id"));
        found.put("node.id", String.valueOf(node.id()));
        found.put("process.roles", "broker");
        found.put("controller.listener.names", "CONTROLLER");
        found.put("controller.quorum.bootstrap.servers", "localhost:1");
        found.merge("listener.security.protocol.map", "CONTROLLER:PLAINTEXT", (known, added) -> known + "," + added);
        return new KafkaConfig(found);
    }

    private static MetadataCache metadata(Supplier<Admin> admins) {
        return proxy(MetadataCache.class, (self, method, arguments) -> {
            try (Admin admin = admins.get()) {
                return switch (method.getName()) {
                    case "getAllTopics" -> admin.listTopics().names().get();
                    case "numPartitions" -> topic(admin, arguments[0]).map(topic -> topic.partitions().size());
                    case "contains" -> topic(admin, arguments[0]).isPresent();
                    case "getTopicId" -> topic(admin, arguments[0]).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID);
                    case "getLeaderAndIsr" -> topic(admin, arguments[0]).flatMap(topic -> partition(topic, (Integer) arguments[1]));
                    case "getAliveBrokerNodes" -> List.copyOf(admin.describeCluster().nodes().get());
                    case "hasAliveBroker" -> admin.describeCluster().nodes().get().stream().anyMatch(each -> each.id() == (Integer) arguments[0]);
                    default -> throw missing("metadataCache." + method.getName());
                };
            }
        });
    }

    private static Optional<TopicDescription> topic(Admin admin, Object name) throws InterruptedException, ExecutionException {
        try {
            return Optional.of(admin.describeTopics(List.of((String) name)).allTopicNames().get().get(name));
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return Optional.empty();
            }
            throw failure;
        }
    }

    private static Optional<LeaderAndIsr> partition(TopicDescription topic, int index) {
        for (TopicPartitionInfo each : topic.partitions()) {
            if (each.partition() == index && each.leader() != null) {
                return Optional.of(new LeaderAndIsr(each.leader().id(), each.isr().stream().map(Node::id).collect(Collectors.toList())));
            }
        }
        return Optional.empty();
    }
}
