import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs command line tools one after the other, each as if it had a JVM of its own.
 *
 * A call on standard input: the number of words, the words (class, arguments), the tool's standard input. The answer on standard output:
 * the status, what the tool wrote to both streams. Words and streams are bytes after their length. Ends with standard input.
 */
public final class Tools {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** What a tool writes to one of its streams. The stream stays the same for all tools: Scala and log4j keep the first they have seen. */
    private static final class Written extends OutputStream {
        private ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            buffer.write(one);
        }

        @Override
        public synchronized void write(byte[] several, int start, int length) {
            buffer.write(several, start, length);
        }

        synchronized byte[] taken() {
            byte[] all = buffer.toByteArray();
            buffer = new ByteArrayOutputStream();
            return all;
        }
    }

    /** Loads the classes of tools anew for every call, since they count in static fields; all others are shared. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader(URL[] jars) {
            super(jars, Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            boolean isTools = name.startsWith("org.apache.kafka.tools.") || name.startsWith("kafka.tools.") || name.startsWith("kafka.admin.");
            if (!isTools) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? findClass(name) : loaded;
            }
        }
    }

    private static final List<Runnable> atExit = new ArrayList<>();
    private static Integer status;

    public static void main(String[] none) throws Exception {
        DataInputStream calls = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Written output = new Written();
        Written errors = new Written();
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        followExit();
        URL[] jars = toolJars();
        while (true) {
            String[] words;
            try {
                words = new String[calls.readInt()];
            } catch (EOFException end) {
                Runtime.getRuntime().exit(0);
                return;
            }
            for (int at = 0; at < words.length; at++) {
                words[at] = new String(read(calls), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(read(calls)));
            answers.writeInt(run(words, new ToolLoader(jars)));
            for (byte[] written : List.of(output.taken(), errors.taken())) {
                answers.writeInt(written.length);
                answers.write(written);
            }
            answers.flush();
        }
    }

    /** Has a tool that exits, halts or adds a hook for its end do so here. Apache Kafka 4.4 has its class `Exit` in another package. */
    private static void followExit() throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException later) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (!method.getName().startsWith("set")) {
                continue;
            }
            InvocationHandler handler = (proxy, called, values) -> {
                if (values[0] instanceof Integer) {
                    exit((Integer) values[0]);
                }
                atExit.add((Runnable) values[1]);
                return null;
            };
            Class<?> procedure = method.getParameterTypes()[0];
            method.invoke(null, Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, handler));
        }
    }

    /** The tool's status. */
    private static int run(String[] words, ToolLoader loader) throws Exception {
        atExit.clear();
        status = null;
        Thread.currentThread().setContextClassLoader(loader);
        String[] arguments = java.util.Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0], true, loader).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                status = status == null ? Integer.valueOf(1) : status;
            }
        }
        for (Runnable hook : atExit) {
            hook.run();
        }
        System.out.flush();
        System.err.flush();
        return status == null ? 0 : status;
    }

    private static void exit(int code) {
        if (status == null) {
            status = code;
        }
        throw new Ended();
    }

    private static byte[] read(DataInputStream from) throws IOException {
        byte[] found = new byte[from.readInt()];
        from.readFully(found);
        return found;
    }

    private static URL[] toolJars() throws Exception {
        List<URL> found = new ArrayList<>();
        for (String path : System.getProperty("java.class.path").split(java.io.File.pathSeparator)) {
            String name = Path.of(path).getFileName().toString();
            if (name.startsWith("kafka-tools-") || name.startsWith("kafka_")) {
                found.add(Path.of(path).toUri().toURL());
            }
        }
        return found.toArray(new URL[0]);
    }
}
