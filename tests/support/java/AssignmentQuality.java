import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Apache Kafka's server-side assignors. Reads one assignment per line, `assignor topic=partitions,... member=topic+topic,...`; an empty
 * line begins another group. Writes the sum of the squares of the members' numbers of partitions, and the number of partitions that a member
 * got from another one.
 */
public class AssignmentQuality {
    public static void main(String[] args) throws Exception {
        Map<String, ConsumerGroupPartitionAssignor> assignors = Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor());
        Map<String, Map<Uuid, Set<Integer>>> before = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.isEmpty()) {
                before = new HashMap<>();
                continue;
            }
            String[] words = line.split(" ");
            Map<Uuid, Integer> counts = new HashMap<>();
            for (String topic : words[1].split(",")) {
                String[] sides = topic.split("=");
                counts.put(id(sides[0]), Integer.parseInt(sides[1]));
            }
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
            Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
            Set<Set<Uuid>> subscriptions = new HashSet<>();
            for (String member : words[2].split(",")) {
                String[] sides = member.split("=");
                Set<Uuid> topics = new HashSet<>();
                for (String topic : sides[1].split("\\+")) topics.add(id(topic));
                subscriptions.add(topics);
                Map<Uuid, Set<Integer>> assigned = before.getOrDefault(sides[0], Map.of());
                assigned.forEach((topic, partitions) -> partitions.forEach(
                    partition -> owners.computeIfAbsent(topic, any -> new HashMap<>()).put(partition, sides[0])));
                members.put(sides[0], new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), Optional.empty(), topics, new Assignment(assigned)));
            }
            SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            Map<String, MemberAssignment> result = assignors.get(words[0]).assign(
                new GroupSpecImpl(members, type, owners), describer(counts)).members();
            long squares = 0;
            long moves = 0;
            Map<String, Map<Uuid, Set<Integer>>> after = new HashMap<>();
            for (Map.Entry<String, MemberAssignment> entry : result.entrySet()) {
                long load = 0;
                Map<Uuid, Set<Integer>> assigned = new HashMap<>();
                for (Map.Entry<Uuid, Set<Integer>> each : entry.getValue().partitions().entrySet()) {
                    load += each.getValue().size();
                    assigned.put(each.getKey(), new HashSet<>(each.getValue()));
                    for (int partition : each.getValue()) {
                        String owner = owners.getOrDefault(each.getKey(), Map.of()).get(partition);
                        if (owner != null && !owner.equals(entry.getKey())) moves++;
                    }
                }
                squares += load * load;
                after.put(entry.getKey(), assigned);
            }
            before = after;
            System.out.println(squares + " " + moves);
        }
    }

    private static Uuid id(String topic) {
        return new Uuid(1, Long.parseLong(topic));
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }
}
