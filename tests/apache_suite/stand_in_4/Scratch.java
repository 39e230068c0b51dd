package ottla.suite;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Queue;
import java.util.stream.Collectors;

/** Ports and directories, of those that the program which started this JVM keeps for it. */
final class Scratch {
    private static final Queue<Integer> PORTS = Arrays.stream(System.getProperty("ottla.ports").split(",")).map(Integer::valueOf)
        .collect(Collectors.toCollection(ArrayDeque::new));

    private Scratch() {
    }

    static File directory() {
        try {
            return Files.createTempDirectory("cluster").toFile();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static synchronized int port() {
        for (int tries = PORTS.size(); tries > 0; tries--) {
            int port = PORTS.remove();
            PORTS.add(port);
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return socket.getLocalPort();
            } catch (IOException taken) {
                continue;
            }
        }
        throw new IllegalStateException("no port is free");
    }
}
