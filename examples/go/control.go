// Package control starts a coordinator for a test, and asks it over HTTP: docs/test/other-languages.md has all operations.
package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Control is a running coordinator.
type Control struct {
	// BootstrapServers is for clients.
	BootstrapServers string

	t    *testing.T
	base string
}

// Group is a group at one moment, as far as this example looks at it.
type Group struct {
	State      string
	Generation int
	Members    []struct {
		GroupInstanceID string `json:"group_instance_id"`
	}
	Committed []struct {
		Topic             string
		Partition, Offset int
	}
	Mark int
}

// Start returns a new coordinator, which ends with the test. If TEST_CONTROL has the HOST:PORT of a running control, of a
// container for example, it is that one, reset. TEST_TENURE has another command than `tenure`.
func Start(t *testing.T) *Control {
	t.Helper()
	c := &Control{t: t}
	address := os.Getenv("TEST_CONTROL")
	if address == "" {
		address = serve(t)
	}
	c.base = "http://" + address
	var state struct {
		BootstrapServers string `json:"bootstrap_servers"`
	}
	c.Do("POST", "/v1/reset", nil, &state)
	c.BootstrapServers = state.BootstrapServers
	return c
}

func serve(t *testing.T) string {
	t.Helper()
	command := strings.Fields(os.Getenv("TEST_TENURE"))
	if len(command) == 0 {
		command = []string{"tenure"}
	}
	command = append(command, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
	process := exec.Command(command[0], command[1:]...)
	said, err := process.StdoutPipe()
	if err == nil {
		process.Stderr = os.Stderr
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Signal(syscall.SIGTERM)
		process.Wait()
	})
	ready, err := bufio.NewReader(said).ReadString('\n')
	for _, word := range strings.Fields(ready) {
		if address, found := strings.CutPrefix(word, "control="); found {
			return address
		}
	}
	t.Fatalf("no ready line: %q, %v", ready, err)
	return ""
}

// Try sends a request and returns status and body. fields: of the body, as JSON.
func (c *Control) Try(method, path string, fields any) (int, []byte) {
	c.t.Helper()
	var body bytes.Buffer
	if fields != nil {
		if err := json.NewEncoder(&body).Encode(fields); err != nil {
			c.t.Fatal(err)
		}
	}
	request, err := http.NewRequest(method, c.base+path, &body)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TEST_CONTROL_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, content
}

// Do is Try for a request that has to succeed: otherwise the test fails with the coordinator's words.
func (c *Control) Do(method, path string, fields, into any) {
	c.t.Helper()
	status, content := c.Try(method, path, fields)
	if status != http.StatusOK {
		var wrong struct{ Error string }
		json.Unmarshal(content, &wrong)
		c.t.Fatalf("%s %s: %d %s", method, path, status, wrong.Error)
	}
	if into != nil {
		if err := json.Unmarshal(content, into); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Fields are those of a request.
type Fields map[string]any

// Ask sends a POST about a group, and returns the group. operation: such as wait, or assert/no-rebalance.
func (c *Control) Ask(group, operation string, fields Fields) Group {
	c.t.Helper()
	var found Group
	c.Do("POST", "/v1/groups/"+group+"/"+operation, fields, &found)
	return found
}
