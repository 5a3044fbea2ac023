package control

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// startWorker stands for your own code: a static member that consumes.
func startWorker(t *testing.T, bootstrap, name string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID(name),
		kgo.ConsumerGroup("workers"),
		kgo.InstanceID(name),
		kgo.ConsumeTopics("orders"),
		kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.RequestTimeoutOverhead(time.Second),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestARollingRestartMovesNothing(t *testing.T) {
	control := Start(t)
	control.Do("POST", "/v1/topics", Fields{"name": "orders", "partitions": 12}, nil)
	workers := make([]*kgo.Client, 3)
	for i := range workers {
		workers[i] = startWorker(t, control.BootstrapServers, fmt.Sprint("worker-", i))
	}
	control.Ask("workers", "wait", Fields{"state": "Stable", "members": 3})
	since := control.Ask("workers", "assert/at-rest", nil).Mark
	for i := range workers {
		workers[i].Close()
		workers[i] = startWorker(t, control.BootstrapServers, fmt.Sprint("worker-", i))
		control.Ask("workers", "wait", Fields{"restarts": i + 1, "no_rebalance_since": since})
	}
	control.Ask("workers", "assert/no-rebalance", Fields{"since": since})
}

func TestACommitWhoseAnswerIsLostIsCommitted(t *testing.T) {
	control := Start(t)
	control.Do("POST", "/v1/topics", Fields{"name": "orders", "partitions": 1}, nil)
	worker := startWorker(t, control.BootstrapServers, "worker-0")
	control.Ask("workers", "wait", Fields{"state": "Stable", "members": 1})
	control.Do("POST", "/v1/faults", Fields{"text": "OffsetCommit client_id=worker-0 -> drop-response"}, nil)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	offsets := map[string]map[int32]kgo.EpochOffset{"orders": {0: {Epoch: -1, Offset: 7}}}
	worker.CommitOffsetsSync(ctx, offsets, nil)

	var faults []struct{ Fired int }
	control.Do("GET", "/v1/faults", nil, &faults)
	if len(faults) != 1 || faults[0].Fired != 1 {
		t.Errorf("the fault did not fire: %v", faults)
	}
	var group Group
	control.Do("GET", "/v1/groups/workers", nil, &group)
	if len(group.Committed) != 1 || group.Committed[0].Offset != 7 {
		t.Errorf("committed: %v", group.Committed)
	}

	worker.Close()
	control.Do("POST", "/v1/reset", nil, nil)
	control.Do("GET", "/v1/groups/workers", nil, &group)
	if group.State != "Dead" {
		t.Errorf("the reset left %v", group)
	}
}
