import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/**
 * Runs Kafka's command line classes one after the other in one JVM: a process for each would need a second of its own.
 *
 * <p>A line of standard input is a command, {"class": NAME, "arguments": [...], "input": TEXT}; the line that answers it
 * is {"code": 0, "out": TEXT, "err": TEXT}. A class gets what its script would give it: arguments, standard input, output
 * and error, and an exit that ends it; its shutdown hooks run when it is done. Where a command's end is in the hands of
 * its output's reader, as with the console consumer, its own options have to end it.
 *
 * <p>House rule: no command is known by name here.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A stream that classes may keep; where it leads changes with each command. */
    private static final class Switched extends OutputStream {
        private OutputStream target = OutputStream.nullOutputStream();

        synchronized void lead(OutputStream into) {
            target = into;
        }

        @Override
        public synchronized void write(int octet) throws IOException {
            target.write(octet);
        }

        @Override
        public synchronized void write(byte[] octets, int start, int length) throws IOException {
            target.write(octets, start, length);
        }
    }

    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();
    private static volatile CompletableFuture<Integer> ended;

    private Tools() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        Switched out = new Switched();
        Switched err = new Switched();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        onExit("setExitProcedure", given -> end((Integer) given[0]));
        onExit("setHaltProcedure", given -> end((Integer) given[0]));
        onExit("setShutdownHookAdder", given -> HOOKS.add((Runnable) given[1]));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = JSON.readTree(line);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            out.lead(said);
            err.lead(complained);
            System.setIn(new ByteArrayInputStream(command.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            int code = run(command.get("class").asText(), JSON.convertValue(command.get("arguments"), String[].class));
            System.out.flush();
            System.err.flush();
            answers.println(JSON.writeValueAsString(Map.of(
                    "code", code,
                    "out", said.toString(StandardCharsets.UTF_8),
                    "err", complained.toString(StandardCharsets.UTF_8))));
            answers.flush();
        }
    }

    /** Sets what Kafka's classes do in place of an exit. Kafka 4.4 has moved the class that they call. */
    private static void onExit(String setter, Consumer<Object[]> then) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException error) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                InvocationHandler handler = (proxy, called, given) -> {
                    then.accept(given);
                    return null;
                };
                Class<?>[] procedure = method.getParameterTypes();
                method.invoke(null, Proxy.newProxyInstance(Tools.class.getClassLoader(), procedure, handler));
            }
        }
    }

    /** Its exit code, with its hooks run. */
    private static int run(String name, String[] arguments) throws Exception {
        HOOKS.clear();
        ended = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
                ended.complete(0);
            } catch (InvocationTargetException error) {
                error.getCause().printStackTrace();
                ended.complete(1);
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                ended.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        int code = ended.get();
        HOOKS.forEach(Runnable::run);
        return code;
    }

    /** Where its process would have ended, a command stays for ever: an exception would be caught and shown. */
    private static void end(int status) {
        ended.complete(status);
        while (true) {
            LockSupport.park();
        }
    }
}
