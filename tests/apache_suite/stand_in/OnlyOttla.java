package ottla.suite;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Leaves out tests on KRaft, whose servers are in this JVM. Fails a test that started no Ottla. */
public class OnlyOttla implements ExecutionCondition, BeforeEachCallback, AfterEachCallback {
    private static final ExtensionContext.Namespace NAMESPACE = ExtensionContext.Namespace.create(OnlyOttla.class);
    private static final String METHODS = System.getProperty("ottla.methods", ".*");
    private static final boolean IS_JUDGED = Boolean.getBoolean("ottla.judge");

    static {
        if (!IS_JUDGED) {
            try {
                Class.forName("kafka.server.OttlaMetrics$"); // takes its place before a test class looks at the metrics of the JVM
            } catch (ClassNotFoundException missing) {
                throw new ExceptionInInitializerError(missing);
            }
        }
    }

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String name = context.getDisplayName();
        if (name.contains("quorum=kraft") || name.contains("Type=Raft") || (name.contains("quorum") && name.contains("kraft"))) {
            return ConditionEvaluationResult.disabled("runs on KRaft");
        }
        if (context.getTestMethod().isPresent() && !context.getTestMethod().get().getName().matches(METHODS)) {
            return ConditionEvaluationResult.disabled("not asked for");
        }
        return ConditionEvaluationResult.enabled("");
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        context.getStore(NAMESPACE).put("started", started());
    }

    @Override
    public void afterEach(ExtensionContext context) {
        int before = context.getStore(NAMESPACE).get("started", Integer.class);
        if (!IS_JUDGED && started() == before && context.getExecutionException().isEmpty()) {
            throw new IllegalStateException("the test has started no Ottla");
        }
    }

    private static int started() {
        return Integer.getInteger("ottla.started", 0);
    }
}
