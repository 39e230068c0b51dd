import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Calls the methods of Java's Admin at broker 1 of an empty cluster, each with and without an error,
    and prints a line for each: `BOOTSTRAP`. */
public class AdminMethods {
    static final TopicPartition A0 = new TopicPartition("a", 0), A1 = new TopicPartition("a", 1), NONE = new TopicPartition("none", 0);
    static final ConfigResource TOPIC = new ConfigResource(ConfigResource.Type.TOPIC, "a");
    static final ConfigResource GROUP = new ConfigResource(ConfigResource.Type.GROUP, "g");
    static final ConfigResource METRICS = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "m");
    static final String ID = "(?<![A-Za-z0-9_-])(?!A{8})(?=[A-Za-z0-9_-]*([0-9]|[a-z][A-Za-z_-]*[A-Z]{2}|[A-Z]{2}[A-Za-z_-]*[a-z]))[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])";
    static String bootstrap;
    static Admin admin;

    interface Call { Object now() throws Exception; }

    static void say(String name, Call call) {
        String text = String.valueOf(outcome(call)).replaceAll(ID, "ID").replaceAll("127.0.0.1:[0-9]+", "HOST").replace("\n", " ");
        System.out.println("> " + name + ": " + text);
    }

    /** Asks until the answer has a text: a broker of Apache Kafka hears of a change after the controller has answered. */
    static void sayWith(String text, String name, Call call) throws InterruptedException {
        for (int tries = 0; tries < 600 && !String.valueOf(outcome(call)).contains(text); tries++) Thread.sleep(50);
        say(name, call);
    }

    static Object outcome(Call call) {
        try {
            return call.now();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }

    static Object each(Map<?, ? extends KafkaFuture<?>> futures) {
        Map<String, Object> found = new TreeMap<>();
        futures.forEach((key, future) -> found.put(String.valueOf(key), outcome(future::get)));
        return found;
    }

    static List<String> sorted(Stream<?> things) {
        return things.map(String::valueOf).sorted().toList();
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static Map<String, Object> client(String... more) {
        Map<String, Object> properties = new TreeMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "c"));
        for (int i = 0; i < more.length; i += 2) properties.put(more[i], more[i + 1]);
        return properties;
    }

    static KafkaProducer<byte[], byte[]> producer(String... more) {
        return new KafkaProducer<>(client(more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin created = Admin.create(client("default.api.timeout.ms", "60000"))) {
            admin = created;
            topics();
            configurations();
            records();
            replicas();
            for (String protocol : List.of("classic", "consumer")) group(protocol);
            groups();
            shareGroups();
            security();
            cluster();
            transactions();
            deletions();
        }
    }

    static void topics() throws Exception {
        say("createTopics", () -> {
            var made = admin.createTopics(List.of(new NewTopic("a", 3, (short) 1),
                new NewTopic("b", Optional.empty(), Optional.empty()).configs(Map.of("retention.ms", "1000"))));
            made.all().get();
            return made.numPartitions("a").get() + " " + made.config("b").get().get("retention.ms").value() + " " + made.topicId("a").get();
        });
        say("createTopics, validateOnly", () -> each(admin.createTopics(
            List.of(new NewTopic("v", 1, (short) 1), new NewTopic("a", 1, (short) 1), new NewTopic("x y", 1, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).values()));
        say("createTopics, replicas", () -> each(admin.createTopics(List.of(new NewTopic("r", 1, (short) 7))).values()));
        say("createTopics, assigned", () -> each(admin.createTopics(List.of(new NewTopic("manual", Map.of(0, List.of(1))))).values()));
        for (int partitions = 1; partitions < 20; partitions++) {
            int wanted = partitions;
            say("deleteTopics, createTopics", () -> {
                admin.deleteTopics(List.of("b")).all().get();
                admin.createTopics(List.of(new NewTopic("b", wanted, (short) 1))).all().get();
                return "";
            });
            sayWith("" + wanted, "describeTopics, b", () ->
                admin.describeTopics(List.of("b")).allTopicNames().get().get("b").partitions().size());
        }
        say("listTopics", () -> sorted(admin.listTopics().names().get().stream()));
        say("describeTopics", () -> admin.describeTopics(List.of("a")).allTopicNames().get());
        say("describeTopics, missing", () -> each(admin.describeTopics(List.of("none", "a b", "x".repeat(300))).topicNameValues()));
        say("describeTopics, by id", () -> each(admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).topicIdValues()));
        say("createPartitions", () -> each(admin.createPartitions(Map.of("a", NewPartitions.increaseTo(4))).values()));
        say("createPartitions, missing", () -> each(admin.createPartitions(Map.of("none", NewPartitions.increaseTo(4))).values()));
        sayWith("partition=3", "describeTopics, more", () -> admin.describeTopics(List.of("a")).allTopicNames().get());
        say("createPartitions, fewer", () -> each(admin.createPartitions(Map.of("a", NewPartitions.increaseTo(2))).values()));
    }

    static void configurations() throws Exception {
        Map<ConfigResource, String[]> right = new TreeMap<>((one, other) -> one.type().compareTo(other.type()));
        right.put(TOPIC, new String[] {"retention.ms", "5000"});
        right.put(GROUP, new String[] {"consumer.session.timeout.ms", "50000"});
        right.put(METRICS, new String[] {"interval.ms", "9000"});
        for (ConfigResource resource : right.keySet()) {
            String[] value = right.get(resource);
            say("incrementalAlterConfigs, wrong", () -> each(
                admin.incrementalAlterConfigs(Map.of(resource, List.of(set("nope", "1")))).values()));
            say("incrementalAlterConfigs, low, " + resource.type(), () -> each(
                admin.incrementalAlterConfigs(Map.of(resource, List.of(set(value[0], "-7")))).values()));
            say("incrementalAlterConfigs", () -> each(
                admin.incrementalAlterConfigs(Map.of(resource, List.of(set(value[0], value[1])))).values()));
            sayWith(value[1], "describeConfigs", () ->
                sorted(admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(each -> each.name().equals(value[0])).map(each -> each.name() + "=" + each.value() + " " + each.source())));
        }
        ConfigResource missing = new ConfigResource(ConfigResource.Type.TOPIC, "none");
        say("describeConfigs, missing", () -> each(admin.describeConfigs(List.of(missing)).values()));
        say("listConfigResources", () -> sorted(admin.listConfigResources().all().get().stream()));
        say("listConfigResources, of groups", () -> sorted(
            admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get().stream()));
    }

    static void records() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int i = 0; i < 20; i++) producer.send(new ProducerRecord<>("a", i % 4, 1000L + i, null, new byte[1])).get();
        }
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1005),
                OffsetSpec.earliestLocal(), OffsetSpec.latestTiered(), OffsetSpec.earliestPendingUpload()))
            say("listOffsets, " + spec.getClass().getSimpleName(), () -> {
                var found = admin.listOffsets(Map.of(A0, spec)).all().get().get(A0);
                return found.offset() + " " + found.timestamp() + " " + found.leaderEpoch();
            });
        say("deleteRecords", () ->
            admin.deleteRecords(Map.of(A0, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(A0).get().lowWatermark());
        say("deleteRecords, beyond", () -> admin.deleteRecords(Map.of(A0, RecordsToDelete.beforeOffset(200))).all().get());
        say("deleteRecords, all", () ->
            admin.deleteRecords(Map.of(A1, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(A1).get().lowWatermark());
        say("describeProducers", () -> admin.describeProducers(List.of(A0)).all().get().get(A0).activeProducers().size());
    }

    static void replicas() {
        say("describeLogDirs", () ->
            admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream().map(each -> each.error() + " "
            + sorted(each.replicaInfos().keySet().stream()
                .filter(replica -> replica.topic().equals("a"))) + " " + each.totalBytes().isPresent()).toList());
        say("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica("a", 0, 1))).all().get()
            .values().iterator().next().getCurrentReplicaOffsetLag());
        say("alterReplicaLogDirs", () ->
            each(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("a", 0, 1), "/nowhere")).values()));
        say("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(A0)).partitions().get());
        say("alterPartitionReassignments", () -> each(
            admin.alterPartitionReassignments(Map.of(A0, Optional.of(new NewPartitionReassignment(List.of(1))), A1,
                Optional.empty())).values()));
        say("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    static void group(String protocol) {
        String id = "g-" + protocol;
        Map<String, Object> properties = client("group.id", id, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "group.instance.id", "i");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(),
            new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("a"));
            while (consumer.assignment().size() < 4) consumer.poll(Duration.ofMillis(100));
            consumer.commitSync(Map.of(A0, new OffsetAndMetadata(3, "text")));
            say("describeConsumerGroups", () -> {
                var found = admin.describeConsumerGroups(List.of(id),
                    new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get().get(id);
                return List.of(found.groupState(), found.type(), found.partitionAssignor(), sorted(found.authorizedOperations().stream()),
                    found.isSimpleConsumerGroup(), found.groupEpoch().isPresent(), found.targetAssignmentEpoch().isPresent(),
                    found.members().stream().map(each -> List.of(each.clientId(), each.groupInstanceId(), each.memberEpoch().isPresent(),
                        each.upgraded(), sorted(each.assignment().topicPartitions().stream()))).toList());
            });
            say("describeClassicGroups", () -> {
                var found = admin.describeClassicGroups(List.of(id)).all().get().get(id);
                return List.of(found.state(), found.protocol(), found.protocolData(), found.members().size());
            });
            say("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get());
            say("alterConsumerGroupOffsets, in use", () ->
                admin.alterConsumerGroupOffsets(id, Map.of(A0, new OffsetAndMetadata(1))).all().get());
            say("deleteConsumerGroupOffsets, in use", () -> admin.deleteConsumerGroupOffsets(id, Set.of(A0)).partitionResult(A0).get());
            say("deleteConsumerGroups, in use", () -> each(admin.deleteConsumerGroups(List.of(id)).deletedGroups()));
            MemberToRemove other = new MemberToRemove("other");
            say("removeMembersFromConsumerGroup, missing", () -> admin.removeMembersFromConsumerGroup(
                id, new RemoveMembersFromConsumerGroupOptions(List.of(other))).memberResult(other).get());
        }
        say("removeMembersFromConsumerGroup", () ->
            admin.removeMembersFromConsumerGroup(id, new RemoveMembersFromConsumerGroupOptions()).all().get());
        say("describeConsumerGroups, empty", () -> admin.describeConsumerGroups(List.of(id)).all().get().get(id).groupState());
        say("alterConsumerGroupOffsets", () ->
            admin.alterConsumerGroupOffsets(id, Map.of(A0, new OffsetAndMetadata(1), A1, new OffsetAndMetadata(1))).all().get());
        say("alterConsumerGroupOffsets, missing", () ->
            admin.alterConsumerGroupOffsets(id, Map.of(NONE, new OffsetAndMetadata(1))).all().get());
        say("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(id, Set.of(A0)).partitionResult(A0).get());
        say("deleteConsumerGroupOffsets, missing", () -> admin.deleteConsumerGroupOffsets(id, Set.of(NONE)).partitionResult(NONE).get());
    }

    static void groups() {
        say("listGroups", () -> sorted(admin.listGroups().all().get().stream()
            .map(each -> each.groupId() + " " + each.type() + " " + each.protocol() + " " + each.groupState())));
        say("listGroups, of consumers", () ->
            sorted(admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream().map(GroupListing::groupId)));
        say("listGroups, by type", () ->
            admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE)).inGroupStates(Set.of(GroupState.EMPTY)))
                .all().get());
        say("describeConsumerGroups, missing", () -> each(admin.describeConsumerGroups(List.of("none")).describedGroups()));
        say("describeClassicGroups, missing", () -> each(admin.describeClassicGroups(List.of("none")).describedGroups()));
        say("describeShareGroups, missing", () -> each(admin.describeShareGroups(List.of("none")).describedGroups()));
        say("listConsumerGroupOffsets, missing", () -> admin.listConsumerGroupOffsets("none").partitionsToOffsetAndMetadata().get());
        say("deleteConsumerGroups", () -> each(admin.deleteConsumerGroups(List.of("g-classic", "g-consumer", "none")).deletedGroups()));
        say("describeStreamsGroups", () -> each(admin.describeStreamsGroups(List.of("none")).describedGroups()));
    }

    static void shareGroups() {
        say("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("s", Map.of(A0, 3L)).all().get());
        say("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("s", new ListShareGroupOffsetsSpec())).all().get());
        say("describeShareGroups", () -> admin.describeShareGroups(List.of("s")).all().get().get("s").groupState());
        say("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("s", Set.of("a")).all().get());
        say("deleteShareGroupOffsets, missing", () -> admin.deleteShareGroupOffsets("s", Set.of("none")).all().get());
        say("deleteShareGroups", () -> each(admin.deleteShareGroups(List.of("s", "none")).deletedGroups()));
    }

    static void security() throws Exception {
        var byUser = new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "u")),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 5000.0)));
        var wrong = new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", "c")),
            List.of(new ClientQuotaAlteration.Op("nope", 1.0)));
        say("alterClientQuotas", () -> each(admin.alterClientQuotas(List.of(byUser, wrong)).values()));
        sayWith("5000", "describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        ScramCredentialInfo scram = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), weak =
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10);
        say("alterUserScramCredentials", () ->
            each(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("alice", scram, "alice-secret"),
            new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512),
                new UserScramCredentialUpsertion("carol", weak, "carol-secret"))).values()));
        sayWith("alice", "describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        say("describeUserScramCredentials, missing", () -> admin.describeUserScramCredentials(List.of("dora")).description("dora").get());
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "a", PatternType.LITERAL),
            new AccessControlEntry("User:x", "*", AclOperation.READ, AclPermissionType.ALLOW));
        say("createAcls", () -> each(admin.createAcls(List.of(acl)).values()));
        say("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        say("deleteAcls", () -> each(admin.deleteAcls(List.of(AclBindingFilter.ANY)).values()));
        say("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        say("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        say("renewDelegationToken", () -> admin.renewDelegationToken(new byte[1]).expiryTimestamp().get());
        say("expireDelegationToken", () -> admin.expireDelegationToken(new byte[1]).expiryTimestamp().get());
    }

    static void cluster() {
        say("describeCluster", () -> {
            var found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true));
            return List.of(found.nodes().get(), found.controller().get(), sorted(found.authorizedOperations().get().stream()));
        });
        say("describeFeatures", () -> new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures()));
        FeatureUpdate raised = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE), removed =
            new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        say("updateFeatures, unknown", () -> each(admin.updateFeatures(Map.of("nope", raised), new UpdateFeaturesOptions()).values()));
        say("updateFeatures, validateOnly", () -> each(
            admin.updateFeatures(Map.of("group.version", removed), new UpdateFeaturesOptions().validateOnly(true)).values()));
        say("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        say("unregisterBroker", () -> admin.unregisterBroker(77).all().get());
    }

    static void transactions() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", "t")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("a", 0, null, new byte[1])).get();
            var filtered = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)).filterOnDuration(0);
            for (String pattern : List.of("t.*", "u.*", "("))
                say("listTransactions, " + pattern, () ->
                    sorted(admin.listTransactions(filtered.filterOnTransactionalIdPattern(pattern)).all().get().stream()
                    .map(each -> each.transactionalId() + " " + each.state())));
            say("describeTransactions", () -> {
                var found = admin.describeTransactions(List.of("t")).all().get().get("t");
                return List.of(found.state(), found.topicPartitions(), found.transactionTimeoutMs(), found.coordinatorId());
            });
            say("describeTransactions, missing", () -> admin.describeTransactions(List.of("nobody")).all().get());
            say("describeProducers, open", () -> sorted(admin.describeProducers(List.of(A0)).all().get().get(A0).activeProducers().stream()
                .map(each -> each.currentTransactionStartOffset() + " " + each.lastSequence())));
            say("listOffsets, committed", () -> admin.listOffsets(
                Map.of(A0, OffsetSpec.latest()), new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get().get(A0).offset());
            say("abortTransaction", () -> {
                var open = admin.describeProducers(List.of(A0)).all().get().get(A0).activeProducers().stream()
                    .filter(each -> each.currentTransactionStartOffset().isPresent()).findFirst().get();
                return admin.abortTransaction(new AbortTransactionSpec(
                    A0, open.producerId(), (short) open.producerEpoch(), open.coordinatorEpoch().orElse(0))).all().get();
            });
            say("fenceProducers", () -> admin.fenceProducers(List.of("t")).epochId("t").get());
            say("forceTerminateTransaction", () -> admin.forceTerminateTransaction("t").result().get());
            say("a fenced producer", () -> {
                producer.commitTransaction();
                return "";
            });
        }
    }

    static void deletions() {
        say("deleteTopics", () -> each(admin.deleteTopics(List.of("a", "none")).topicNameValues()));
        say("deleteTopics, by id", () -> {
            Uuid id = admin.describeTopics(List.of("b")).allTopicNames().get().get("b").topicId();
            return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id).get();
        });
        say("deleteTopics, by id, missing", () ->
            each(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).topicIdValues()));
    }
}
