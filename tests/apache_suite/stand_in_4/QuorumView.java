package ottla.suite;

import java.lang.reflect.Proxy;
import java.util.AbstractMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import kafka.server.ControllerServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.controller.Controller;

import org.mockito.Mockito;

/**
 * Shows tests what they ask of a controller that they take by its id: the ids of topics.
 *
 * The map has no entries, since a test that waits for all controllers would look into the logs of a quorum.
 */
final class QuorumView extends AbstractMap<Integer, ControllerServer> {
    static final Set<Integer> IDS = Set.of(3000);

    private final Supplier<Admin> admins;

    QuorumView(Supplier<Admin> admins) {
        this.admins = admins;
    }

    @Override
    public Set<Map.Entry<Integer, ControllerServer>> entrySet() {
        return Set.of();
    }

    @Override
    public ControllerServer get(Object id) {
        ControllerServer server = Mockito.mock(ControllerServer.class, call -> {
            throw new UnsupportedOperationException("there is no controller in this JVM: " + call.getMethod().getName());
        });
        Mockito.doReturn(controller()).when(server).controller();
        return server;
    }

    private Controller controller() {
        ClassLoader loader = Controller.class.getClassLoader();
        return (Controller) Proxy.newProxyInstance(loader, new Class<?>[] {Controller.class}, (self, method, arguments) -> {
            if (!method.getName().equals("findAllTopicIds")) {
                throw new UnsupportedOperationException("there is no controller in this JVM: " + method.getName());
            }
            try (Admin admin = admins.get()) {
                Map<String, Uuid> ids = admin.listTopics().listings().get().stream()
                    .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
                return CompletableFuture.completedFuture(ids);
            }
        });
    }
}
