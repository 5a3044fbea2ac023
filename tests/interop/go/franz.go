package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	retryTimeout   = time.Minute
	redialInterval = 100 * time.Millisecond
)

// franz is kgo.Client. Which partitions it owns it says in its callbacks only, and of a Fetch that brings no records only
// that it was answered: the high watermarks are asked for then.
type franz struct {
	client *kgo.Client
	told   settings

	mu      sync.Mutex
	owned   []int32
	fetches int // answered since the last assignment
}

func startFranz(told settings) (consumer, *clientError) {
	f := &franz{told: told}
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(told.Bootstrap),
		kgo.ConsumerGroup(told.Group),
		kgo.SessionTimeout(milliseconds(told.SessionTimeout)),
		kgo.HeartbeatInterval(milliseconds(told.HeartbeatInterval)),
		kgo.RebalanceTimeout(milliseconds(told.RebalanceTimeout)),
		kgo.Balancers(balancers[told.Assignor]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.RetryTimeout(retryTimeout), // of heartbeats, too: else a session timeout, and then it joins again
		kgo.OnPartitionsAssigned(f.assigned),
		kgo.OnPartitionsRevoked(f.revoked),
		kgo.OnPartitionsLost(f.lost),
		kgo.WithHooks(f),
	}
	if told.Login == nil {
		options = append(options, kgo.Dialer(dial))
	} else {
		user := scram.Auth{User: told.Login.User, Pass: told.Login.Password}
		options = append(options, kgo.DialTLSConfig(told.Login.tls()), kgo.SASL(user.AsSha512Mechanism()))
	}
	if told.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if told.Pattern != nil {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(*told.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(told.Topic))
	}
	if told.GroupInstanceID != nil {
		options = append(options, kgo.InstanceID(*told.GroupInstanceID))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, franzError(err)
	}
	f.client = client
	return f, nil
}

// dial waits for a server. The client's own gives up where a connection is refused: the heartbeat then asks its only
// server for the coordinator, is refused again, and the member loses its partitions and joins anew, within a second.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	for {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return connection, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(redialInterval):
		}
	}
}

func (f *franz) poll() ([]consumed, *clientError) {
	ctx, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := f.client.PollFetches(ctx)
	for _, failed := range fetches.Errors() {
		var session *kgo.ErrGroupSession
		if errors.Is(failed.Err, context.DeadlineExceeded) || errors.Is(failed.Err, context.Canceled) {
			continue
		}
		text := failed.Err.Error()
		if errors.As(failed.Err, &session) && errors.Is(session.Err, kerr.FencedInstanceID) {
			text = "fenced: " + text
		}
		if errors.Is(failed.Err, kerr.UnreleasedInstanceID) {
			text = "UNRELEASED_INSTANCE_ID: " + text
		}
		emit("notice", fields{"text": text, "logger": "franz-go"})
	}
	var found []consumed
	fetches.EachRecord(func(each *kgo.Record) {
		one := consumed{each.Partition, each.Offset, record{each.Key, each.Value, nil}}
		for _, h := range each.Headers {
			one.record.headers = append(one.record.headers, header{h.Key, h.Value})
		}
		found = append(found, one)
	})
	return found, nil
}

func (f *franz) membership() membership {
	memberID, generation := f.client.GroupMetadata()
	f.mu.Lock()
	defer f.mu.Unlock()
	return membership{generation, memberID, slices.Clone(f.owned)}
}

func (f *franz) highWatermarks() map[int32]int64 {
	f.mu.Lock()
	owned, fetches := slices.Clone(f.owned), f.fetches
	f.mu.Unlock()
	if fetches == 0 {
		return nil
	}
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = f.told.Topic
	for _, number := range owned {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition = number
		partition.Timestamp = -1 // the end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	found := map[int32]int64{}
	for _, shard := range f.client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil
		}
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range topic.Partitions {
				if partition.ErrorCode == 0 {
					found[partition.Partition] = partition.Offset
				}
			}
		}
	}
	return found
}

func (f *franz) commit(offsets map[int32]committed) *clientError {
	wanted := map[int32]kgo.EpochOffset{}
	for number, offset := range offsets {
		wanted[number] = kgo.EpochOffset{Epoch: -1, Offset: offset.offset}
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for _, topic := range request.Topics {
			for i := range topic.Partitions {
				text := offsets[topic.Partitions[i].Partition].metadata
				topic.Partitions[i].Metadata = &text
			}
		}
		return nil
	})
	var failure *clientError
	all := map[string]map[int32]kgo.EpochOffset{f.told.Topic: wanted}
	f.client.CommitOffsetsSync(ctx, all, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil {
			failure = franzError(err)
			return
		}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					failure = franzError(err)
				}
			}
		}
	})
	return failure
}

func (f *franz) readCommitted(partitions []int32) (map[int32]committed, *clientError) {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = f.told.Group
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = f.told.Topic
	topic.Partitions = partitions
	request.Topics = append(request.Topics, topic)
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	response, err := request.RequestWith(ctx, f.client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		return nil, franzError(err)
	}
	found := map[int32]committed{}
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if partition.Offset >= 0 && partition.Metadata != nil {
				found[partition.Partition] = committed{partition.Offset, *partition.Metadata}
			}
		}
	}
	return found, nil
}

func (f *franz) produce(records []record, compression string) *clientError {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression()}
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(f.told.Bootstrap),
		kgo.DefaultProduceTopic(f.told.Topic),
		kgo.ProducerBatchCompression(codecs[compression]),
	)
	if err != nil {
		return franzError(err)
	}
	defer producer.Close()
	var sent []*kgo.Record
	for _, each := range records {
		one := &kgo.Record{Key: each.key, Value: each.value}
		for _, h := range each.headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
		sent = append(sent, one)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if err := producer.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return franzError(err)
	}
	return nil
}

func (f *franz) close() { f.client.Close() }

// OnBrokerE2E counts the Fetch requests that were answered.
func (f *franz) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Fetch) && e2e.Err() == nil {
		f.mu.Lock()
		f.fetches++
		f.mu.Unlock()
	}
}

func (f *franz) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	added := partitions[f.told.Topic]
	f.mu.Lock()
	f.owned = append(f.owned, added...)
	slices.Sort(f.owned)
	f.fetches = 0
	f.mu.Unlock()
	emit("assigned", fields{"partitions": some(added)})
}

func (f *franz) revoked(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	f.giveUp("revoked", partitions[f.told.Topic])
}

func (f *franz) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	f.giveUp("lost", partitions[f.told.Topic])
}

func (f *franz) giveUp(event string, gone []int32) {
	f.mu.Lock()
	f.owned = slices.DeleteFunc(f.owned, func(partition int32) bool { return slices.Contains(gone, partition) })
	f.mu.Unlock()
	emit(event, fields{"partitions": some(gone)})
}

func franzError(err error) *clientError {
	var known *kerr.Error
	if errors.As(err, &known) {
		return &clientError{known.Message, err.Error(), false}
	}
	return &clientError{"UNKNOWN", err.Error(), false}
}
