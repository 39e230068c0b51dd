package ottla.suite;

import java.io.File;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;

/** The brokers of one test, in processes of their own. What a test asks of controllers, or of a broker's inside, is not there. */
public class OttlaCluster implements ClusterInstance {
    private static final long WAIT_MS = 60_000;

    private final ClusterConfig config;
    private final Map<Integer, OttlaNode> nodes = new TreeMap<>();
    private File directory;
    private boolean started;
    private boolean stopped;

    public OttlaCluster(ClusterConfig config) {
        this.config = config;
    }

    /** Waits until something holds, asked several times a second. Throws AssertionError. */
    static void await(String what, Callable<Boolean> holds) {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (Exception notYet) {
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError(what, notYet);
                }
            }
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("not within " + WAIT_MS + " ms: " + what);
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException interrupted) {
                throw new AssertionError(interrupted);
            }
        }
    }

    @Override
    public synchronized void start() {
        if (started) {
            return;
        }
        started = true;
        directory = Scratch.directory();
        for (int id = 0; id < config.numBrokers(); id++) {
            nodes.put(id, new OttlaNode(id, config, directory));
            nodes.get(id).start();
        }
        waitForReadyBrokers();
        setFeatures();
    }

    /** Finalises the levels that the test asks for. A new cluster has the highest ones. */
    private void setFeatures() {
        Map<String, FeatureUpdate> updates = new HashMap<>();
        try (Admin admin = admin()) {
            Map<String, Short> levels = admin.describeFeatures().featureMetadata().get().finalizedFeatures().entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().maxVersionLevel()));
            config.features().forEach((feature, level) -> {
                Short now = levels.get(feature.featureName());
                if (now != null && now > level) {
                    updates.put(feature.featureName(), new FeatureUpdate(level, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE));
                }
            });
            if (!updates.isEmpty()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            }
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    @Override
    public synchronized void stop() {
        if (!stopped) {
            stopped = true;
            nodes.values().forEach(OttlaNode::kill);
        }
    }

    @Override
    public void shutdownBroker(int id) {
        node(id).stop();
    }

    @Override
    public void startBroker(int id) {
        node(id).start();
    }

    private OttlaNode node(int id) {
        return Optional.ofNullable(nodes.get(id)).orElseThrow(() -> new IllegalArgumentException("there is no broker " + id));
    }

    @Override
    public void waitForReadyBrokers() {
        long wanted = nodes.values().stream().filter(OttlaNode::isRunning).count();
        for (OttlaNode node : nodes.values()) {
            if (node.isRunning()) {
                try (Admin admin = adminOf(node)) {
                    await("the brokers of broker " + node.id(), () -> admin.describeCluster().nodes().get().size() == wanted);
                }
            }
        }
    }

    private Admin adminOf(OttlaNode node) {
        return Admin.create(setClientSaslConfig(new HashMap<>(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, node.address()))));
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) {
        for (OttlaNode node : nodes.values()) {
            if (node.isRunning()) {
                try (Admin admin = adminOf(node)) {
                    await(topic + " is created", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()
                        .stream().filter(each -> each.leader() != null).count() == partitions);
                }
            }
        }
    }

    @Override
    public void waitTopicDeletion(String topic) {
        for (OttlaNode node : nodes.values()) {
            if (node.isRunning()) {
                try (Admin admin = adminOf(node)) {
                    await(topic + " is deleted", () -> !admin.listTopics().names().get().contains(topic));
                }
            }
        }
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> wanted) {
        try (Admin admin = admin()) {
            await("the ACLs are " + wanted, () -> admin.describeAcls(filter).values().get().stream().map(AclBinding::entry)
                .collect(Collectors.toSet()).equals(Set.copyOf(wanted)));
        }
    }

    @Override
    public void ensureConsistentMetadata() {
        waitForReadyBrokers();
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
        waitForReadyBrokers();
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return nodes.values().stream().collect(Collectors.toMap(OttlaNode::id, node -> BrokerView.of(node, () -> adminOf(node))));
    }

    @Override
    public Map<Integer, KafkaBroker> aliveBrokers() {
        return nodes.values().stream().filter(OttlaNode::isRunning)
            .collect(Collectors.toMap(OttlaNode::id, node -> BrokerView.of(node, () -> adminOf(node))));
    }

    @Override
    public Set<Integer> brokerIds() {
        return nodes.keySet();
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return nodes.values().stream().filter(OttlaNode::isRunning).map(OttlaNode::port).collect(Collectors.toList());
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new QuorumView(this::admin);
    }

    @Override
    public Set<Integer> controllerIds() {
        return QuorumView.IDS;
    }

    @Override
    public String bootstrapServers() {
        return nodes.values().stream().filter(OttlaNode::isRunning).map(OttlaNode::address).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException("there are no controllers to connect to");
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public Type type() {
        return config.clusterTypes().iterator().next();
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
