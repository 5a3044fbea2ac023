// Kafka's own arithmetic of quotas, for test_quotas.py: commands on standard input, an answer for each on standard output.
//
//   rate SAMPLES SIZE_S BOUND            begin with a Rate          record VALUE MS   its rate and its wait
//   tokens SAMPLES SIZE_S BOUND          begin with a TokenBucket   record VALUE MS   what is left, and the wait
//   quotas                               begin with no quotas
//   set USER CLIENT BOUND                - is no part of the entity, <default> the default
//   of USER CLIENT                       the bound; the largest long is none

import java.util.Arrays;
import java.util.Collections;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import kafka.server.ClientQuotaManager;
import kafka.server.ControllerMutationQuotaManager;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import kafka.utils.QuotaUtils;
import scala.Option;

public class Quotas {
    static Option<String> part(String name) {
        return name.equals("-") ? Option.empty() : Option.apply(name);
    }

    static String name(String text) {
        return text.equals("-") ? "" : text;
    }

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        MeasurableStat stat = null;
        MetricConfig config = null;
        ClientQuotaManager quotas = null;
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            switch (words[0]) {
                case "rate":
                case "tokens":
                    stat = words[0].equals("rate") ? new Rate() : new TokenBucket();
                    config = new MetricConfig()
                        .samples(Integer.parseInt(words[1]))
                        .timeWindow(Long.parseLong(words[2]), TimeUnit.SECONDS)
                        .quota(new Quota(Double.parseDouble(words[3]), true));
                    break;
                case "record":
                    double bound = config.quota().bound();
                    long ms = Long.parseLong(words[2]);
                    stat.record(config, Double.parseDouble(words[1]), ms);
                    double value = stat.measure(config, ms);
                    MetricName name = new MetricName("m", "g", "d", Collections.emptyMap());
                    KafkaMetric metric = new KafkaMetric(new Object(), name, stat, config, Time.SYSTEM);
                    QuotaViolationException violation = new QuotaViolationException(metric, value, bound);
                    long wait = 0;
                    if (stat instanceof Rate && value > bound) wait = QuotaUtils.throttleTime(violation, ms);
                    if (stat instanceof TokenBucket && value < 0)
                        wait = ControllerMutationQuotaManager.throttleTimeMs(violation, ms);
                    System.out.println(value + " " + wait);
                    break;
                case "quotas":
                    quotas = new ClientQuotaManager(
                        new ClientQuotaManagerConfig(11, 1), new Metrics(), kafka.server.QuotaType.Produce$.MODULE$, Time.SYSTEM, "",
                        Option.empty());
                    break;
                case "set":
                    quotas.updateQuota(
                        part(words[1]), part(words[2]), part(words[2]),
                        Option.apply(new Quota(Double.parseDouble(words[3]), true)));
                    break;
                case "of":
                    System.out.println(quotas.quota(name(words[1]), name(words[2])).bound() + " 0");
                    break;
                default:
                    throw new IllegalArgumentException(Arrays.toString(words));
            }
        }
        System.exit(0);
    }
}
