// A consumer process on a client written in Go: franz-go or sarama.
//
// It speaks the JSON lines of ../worker.py, which says what each of them means: commands on standard input, events on
// standard output. The loop here is the same for both clients; what differs stands in franz.go and sarama.go.
//
// House rule: ../worker.py's.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollTime       = 50 * time.Millisecond
	reportInterval = 250 * time.Millisecond
	requestTimeout = 20 * time.Second
)

// settings are the settings of a worker; times in milliseconds.
type settings struct {
	Bootstrap         string  `json:"bootstrap"`
	Group             string  `json:"group"`
	Topic             string  `json:"topic"`
	GroupInstanceID   *string `json:"group_instance_id"`
	Assignor          string  `json:"assignor"`
	SessionTimeout    int     `json:"session_timeout_ms"`
	HeartbeatInterval int     `json:"heartbeat_interval_ms"`
	RebalanceTimeout  int     `json:"rebalance_timeout_ms"`
	Records           bool    `json:"records"`
	Login             *login  `json:"login"`
	Protocol          string  `json:"protocol"`
	Pattern           *string `json:"pattern"`
}

// login is how a consumer logs in over TLS; CA is the file of the CA.
type login struct {
	CA        string `json:"ca"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
}

// tls trusts the CA alone.
func (l *login) tls() *tls.Config {
	text, err := os.ReadFile(l.CA)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: pool}
}

func milliseconds(count int) time.Duration { return time.Duration(count) * time.Millisecond }

// membership is a consumer's place in its group, as the client itself sees it.
type membership struct {
	generation int32
	memberID   string
	partitions []int32
}

func (m membership) equal(other membership) bool {
	return m.generation == other.generation && m.memberID == other.memberID &&
		slices.Equal(m.partitions, other.partitions)
}

// committed is an offset with its metadata; in a line it is [offset, metadata].
type committed struct {
	offset   int64
	metadata string
}

func (c committed) MarshalJSON() ([]byte, error) { return json.Marshal([]any{c.offset, c.metadata}) }

func (c *committed) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[]any{&c.offset, &c.metadata})
}

// header is a record's header; in a line it is [name, value].
type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[]any{&h.name, &h.value})
}

// record is [key, value, headers] in a line. encoding/json has bytes in base64, and nil ones as null.
type record struct {
	key, value []byte
	headers    []header
}

func (r record) MarshalJSON() ([]byte, error) {
	if r.headers == nil {
		r.headers = []header{}
	}
	return json.Marshal([]any{r.key, r.value, r.headers})
}

func (r *record) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[]any{&r.key, &r.value, &r.headers})
}

// consumed is a record and where it was.
type consumed struct {
	partition int32
	offset    int64
	record    record
}

func (c consumed) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{c.partition, c.offset, c.record})
}

// clientError is an error under Kafka's name for it; fatal says that the client is finished.
type clientError struct {
	name  string
	text  string
	fatal bool
}

func (e *clientError) Error() string { return e.name + ": " + e.text }

// consumer is a client behind one face.
type consumer interface {
	// poll waits a short time for records. It fails only when the client is finished.
	poll() ([]consumed, *clientError)
	membership() membership
	// highWatermarks are those of the partitions that a Fetch has answered for.
	highWatermarks() map[int32]int64
	commit(map[int32]committed) *clientError
	readCommitted([]int32) (map[int32]committed, *clientError)
	produce([]record, string) *clientError
	close()
}

type fields map[string]any

var output sync.Mutex

// emit prints one event; `at` is the machine's monotonic clock in seconds.
func emit(event string, more fields) {
	line := fields{"event": event}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	line["at"] = float64(now.Nano()) / 1e9
	for name, value := range more {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func emitFailure(event string, failure *clientError) {
	emit(event, fields{"error": failure.name, "text": failure.text})
}

type command struct {
	Do          string               `json:"do"`
	Offsets     map[string]committed `json:"offsets"`
	Partitions  []int32              `json:"partitions"`
	Records     []record             `json:"records"`
	Compression string               `json:"compression"`
}

// readCommands hands on what comes on standard input; the process ends when its parent does.
func readCommands() <-chan command {
	commands := make(chan command, 16)
	go func() {
		lines := json.NewDecoder(bufio.NewReader(os.Stdin))
		for {
			var next command
			if err := lines.Decode(&next); err == io.EOF {
				os.Exit(1)
			} else if err != nil {
				panic(err)
			}
			commands <- next
		}
	}()
	return commands
}

// version is that of the module that this program was built with.
func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return dependency.Version[1:]
		}
	}
	panic(module)
}

func main() {
	var told settings
	if err := json.Unmarshal([]byte(os.Args[2]), &told); err != nil {
		panic(err)
	}
	clients := map[string]struct {
		module string
		start  func(settings) (consumer, *clientError)
	}{
		"franz-go": {"github.com/twmb/franz-go", startFranz},
		"sarama":   {"github.com/IBM/sarama", startSarama},
	}
	chosen := clients[os.Args[1]]
	commands := readCommands()
	emit("started", fields{"client": os.Args[1], "version": version(chosen.module), "pid": os.Getpid()})
	client, failure := chosen.start(told)
	if failure == nil {
		failure = run(client, told, commands)
	}
	if failure != nil {
		emitFailure("fatal", failure)
		os.Exit(1)
	}
}

// run polls until the close command, or until the client gives up.
func run(client consumer, told settings, commands <-chan command) *clientError {
	last := membership{generation: -1}
	fetched := false
	var reported time.Time
	for {
		found, failure := client.poll()
		if failure != nil {
			return failure
		}
		if len(found) > 0 && told.Records {
			emit("records", fields{"records": found})
		}
		if now := client.membership(); !now.equal(last) {
			last, fetched = now, false
			emit("membership", fields{
				"generation": now.generation, "member_id": now.memberID, "partitions": some(now.partitions),
			})
		}
		if !fetched && len(last.partitions) > 0 {
			highWatermarks := client.highWatermarks()
			fetched = !slices.ContainsFunc(last.partitions, func(partition int32) bool {
				_, known := highWatermarks[partition]
				return !known
			})
			if fetched {
				emit("fetched", fields{"high_watermarks": highWatermarks})
			}
		}
		if time.Since(reported) >= reportInterval {
			reported = time.Now()
			emit("polled", nil)
		}
		for waiting := true; waiting; {
			select {
			case next := <-commands:
				if next.Do == "close" {
					emit("closing", nil)
					client.close()
					emit("closed", nil)
					return nil
				}
				if failure := obey(client, next); failure != nil && failure.fatal {
					return failure
				}
			default:
				waiting = false
			}
		}
	}
}

func obey(client consumer, next command) *clientError {
	switch next.Do {
	case "commit":
		offsets := map[int32]committed{}
		for name, offset := range next.Offsets {
			partition, err := strconv.ParseInt(name, 10, 32)
			if err != nil {
				panic(err)
			}
			offsets[int32(partition)] = offset
		}
		if failure := client.commit(offsets); failure != nil {
			emitFailure("commit_failed", failure)
			return failure
		}
		emit("committed", fields{"generation": client.membership().generation, "offsets": next.Offsets})
	case "read_committed":
		found, failure := client.readCommitted(next.Partitions)
		// A connection that has died fails a read: the next read opens another one.
		for until := time.Now().Add(requestTimeout); failure != nil && time.Now().Before(until); time.Sleep(pollTime) {
			found, failure = client.readCommitted(next.Partitions)
		}
		if failure != nil {
			return &clientError{failure.name, failure.text, true}
		}
		offsets := map[string]*committed{}
		for _, partition := range next.Partitions {
			name := strconv.Itoa(int(partition))
			if offset, known := found[partition]; known {
				offsets[name] = &offset
			} else {
				offsets[name] = nil
			}
		}
		emit("read_committed", fields{"offsets": offsets})
	case "produce":
		if failure := client.produce(next.Records, next.Compression); failure != nil {
			emitFailure("produce_failed", failure)
		} else {
			emit("produced", fields{"count": len(next.Records)})
		}
	default:
		panic(fmt.Sprintf("no such command: %q", next.Do))
	}
	return nil
}

// some is what encoding/json writes as a list, even when it is empty.
func some(partitions []int32) []int32 {
	if partitions == nil {
		return []int32{}
	}
	return partitions
}
