import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "name version hex" from a file, decodes each with Apache Kafka's own class of that name, encodes it again, and prints the
 * lines whose bytes came out different, with the reason. The last line is the number of those that came out the same.
 */
public class MessageRoundTrip {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    public static void main(String[] arguments) throws Exception {
        int same = 0;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            try {
                byte[] sent = HexFormat.of().parseHex(words[2]);
                if (Arrays.equals(sent, again(newMessage(words[0]), Short.parseShort(words[1]), sent))) {
                    same++;
                } else {
                    System.out.println(line + " differs");
                }
            } catch (Throwable reason) {
                System.out.println(line + " " + reason);
            }
        }
        System.out.println(same);
    }

    private static Message newMessage(String name) throws Exception {
        for (String prefix : PACKAGES) {
            for (String suffix : List.of("Data", "")) {
                try {
                    return (Message) Class.forName(prefix + name + suffix).getDeclaredConstructor().newInstance();
                } catch (ClassNotFoundException notThere) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static byte[] again(Message message, short version, byte[] sent) {
        ByteBuffer in = ByteBuffer.wrap(sent);
        message.read(new ByteBufferAccessor(in), version);
        if (in.hasRemaining()) {
            throw new IllegalStateException(in.remaining() + " bytes are left");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return out.array();
    }
}
