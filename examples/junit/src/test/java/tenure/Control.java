package tenure;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A coordinator for the tests of a class, reset before each of them. docs/test/other-languages.md has all operations.
 *
 * <p>If TEST_CONTROL has the HOST:PORT of a running control, of a container for example, it is that one. Otherwise it is a
 * process; TEST_TENURE has another command than {@code tenure}.
 */
final class Control implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
    private final HttpClient http = HttpClient.newHttpClient();
    private Process process;
    private String base;
    private String bootstrapServers;

    /** For clients. */
    String bootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        base = "http://" + Optional.ofNullable(System.getenv("TEST_CONTROL")).orElseGet(this::serve);
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        bootstrapServers = text(post("/v1/reset", "{}"), "bootstrap_servers");
    }

    @Override
    public void afterAll(ExtensionContext context) throws InterruptedException {
        if (process != null) {
            process.destroy();
            process.waitFor();
        }
    }

    private String serve() {
        String command = Optional.ofNullable(System.getenv("TEST_TENURE")).orElse("tenure");
        List<String> words = new ArrayList<>(List.of(command.split(" ")));
        words.addAll(List.of("serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"));
        try {
            process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String ready = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
            Matcher found = Pattern.compile(" control=(\\S+)").matcher(String.valueOf(ready));
            if (!found.find()) {
                throw new IllegalStateException("no ready line: " + ready);
            }
            return found.group(1);
        } catch (IOException error) {
            throw new IllegalStateException(command, error);
        }
    }

    /** The answer to a GET, JSON. */
    String get(String path) {
        return ask(request(path).GET());
    }

    /** The answer to a POST, JSON. fields: of the body, as JSON. */
    String post(String path, String fields) {
        return ask(request(path).POST(HttpRequest.BodyPublishers.ofString(fields)));
    }

    /** A POST about a group, which answers with the group. operation: such as wait, or assert/no-rebalance. */
    String group(String name, String operation, String fields) {
        return post("/v1/groups/" + name + "/" + operation, fields);
    }

    private HttpRequest.Builder request(String path) {
        String token = Optional.ofNullable(System.getenv("TEST_CONTROL_TOKEN")).orElse("");
        return HttpRequest.newBuilder(URI.create(base + path)).header("Authorization", "Bearer " + token);
    }

    private String ask(HttpRequest.Builder request) {
        try {
            HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new AssertionError(answer.body().replace("\\n", "\n"));
            }
            return answer.body();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    /** The first number of this name in JSON; a test of your own has a library for that. */
    static int number(String json, String name) {
        return Integer.parseInt(found(json, name, "(\\d+)"));
    }

    /** The first text of this name in JSON. */
    static String text(String json, String name) {
        return found(json, name, "\"([^\"]*)\"");
    }

    private static String found(String json, String name, String value) {
        Matcher found = Pattern.compile("\"" + name + "\":" + value).matcher(json);
        if (!found.find()) {
            throw new AssertionError("no " + name + " in " + json);
        }
        return found.group(1);
    }
}
