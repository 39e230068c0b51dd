import org.apache.kafka.server.common.MetadataVersion;

/** What every inter.broker.protocol.version selects, a line each. */
public class ProtocolVersions {
    public static void main(String[] arguments) {
        for (MetadataVersion each : MetadataVersion.values()) {
            System.out.printf("%s %d %d %d %b %b %b %b%n", each.version(), each.fetchRequestVersion(), each.listOffsetRequestVersion(),
                each.offsetForLeaderEpochRequestVersion(), each.isTruncationOnFetchSupported(), each.isOffsetForLeaderEpochSupported(),
                each.isAlterPartitionSupported(), each.isTopicIdsSupported());
        }
    }
}
