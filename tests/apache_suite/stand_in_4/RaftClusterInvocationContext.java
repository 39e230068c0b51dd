package org.apache.kafka.common.test.junit;

import java.util.List;
import java.util.Set;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import ottla.suite.OttlaCluster;

/**
 * Takes the place of Apache Kafka's class of this name, and gives a test a cluster of Ottla instead of one in this JVM.
 *
 * A test that runs with separate controllers and with combined ones runs once, since Ottla has neither.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int index) {
        return String.format("%s [%d] %s", name, index, String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OttlaCluster cluster = new OttlaCluster(config);
        ExecutionCondition condition = context -> {
            if (isCombined && config.clusterTypes().containsAll(Set.of(Type.KRAFT, Type.CO_KRAFT))) {
                return ConditionEvaluationResult.disabled("the same as with separate controllers");
            }
            return ConditionEvaluationResult.enabled("");
        };
        BeforeEachCallback before = context -> {
            if (config.isAutoStart()) {
                cluster.start();
            }
        };
        AfterTestExecutionCallback after = context -> cluster.stop();
        return List.of(condition, before, after, new ClusterInstanceParameterResolver(cluster));
    }
}
