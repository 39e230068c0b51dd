import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import org.apache.kafka.common.utils.Exit;

/** Runs command line tools one after the other in one JVM. Each line of standard input is a class and its arguments, separated by tabs. */
public final class Several {
    private static final class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String[] arguments = java.util.Arrays.copyOfRange(words, 1, words.length);
            int status = 0;
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException thrown) {
                status = thrown.getCause() instanceof Ended ? ((Ended) thrown.getCause()).status : 1;
            }
            System.out.flush();
            System.err.flush();
            System.out.print("\u0000" + status + "\u0000");
            System.err.print("\u0000\u0000");
            System.out.flush();
            System.err.flush();
        }
    }
}
