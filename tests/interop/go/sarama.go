package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

const (
	backoff = 250 * time.Millisecond
	// The heartbeats of a server that is gone fail without a pause in between: as often as it takes until it is back.
	retries = 1_000_000

	unnamed = "UNKNOWN"
)

// group is sarama.ConsumerGroup, and its handler. The client calls the handler in goroutines of its own, one for each
// partition; what they say is kept here until the loop asks.
type group struct {
	told   settings
	client sarama.Client
	group  sarama.ConsumerGroup
	stop   context.CancelFunc
	ended  chan struct{}

	records  chan *sarama.ConsumerMessage
	problems chan error
	finished chan *clientError

	mu      sync.Mutex
	session sarama.ConsumerGroupSession
	claims  map[int32]sarama.ConsumerGroupClaim
	fetches int64 // answered before the last partition was assigned
}

func startSarama(told settings) (consumer, *clientError) {
	strategies := map[string]sarama.BalanceStrategy{
		"range":              sarama.NewBalanceStrategyRange(),
		"roundrobin":         sarama.NewBalanceStrategyRoundRobin(),
		"sticky":             sarama.NewBalanceStrategySticky(),
		"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky(),
	}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = retries
	config.Metadata.Retry.Backoff = backoff
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = milliseconds(told.SessionTimeout)
	config.Consumer.Group.Heartbeat.Interval = milliseconds(told.HeartbeatInterval)
	config.Consumer.Group.Rebalance.Timeout = milliseconds(told.RebalanceTimeout)
	config.Consumer.Group.Rebalance.Retry.Backoff = backoff
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[told.Assignor]}
	if told.GroupInstanceID != nil {
		config.Consumer.Group.InstanceId = *told.GroupInstanceID
	}
	if told.Login != nil {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = told.Login.tls()
		// For SCRAM, sarama needs a further package from its user.
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		config.Net.SASL.User = told.Login.User
		config.Net.SASL.Password = told.Login.Password
	}
	client, err := sarama.NewClient([]string{told.Bootstrap}, config)
	if err != nil {
		return nil, saramaError(err)
	}
	members, err := sarama.NewConsumerGroupFromClient(told.Group, client)
	if err != nil {
		return nil, saramaError(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g := &group{
		told: told, client: client, group: members, stop: stop,
		ended:    make(chan struct{}),
		records:  make(chan *sarama.ConsumerMessage, 1000),
		problems: make(chan error, 1000),
		finished: make(chan *clientError, 1),
		claims:   map[int32]sarama.ConsumerGroupClaim{},
	}
	go func() {
		for problem := range members.Errors() {
			emit("notice", fields{"text": problem.Error(), "logger": "sarama"})
			g.problems <- problem
		}
	}()
	go g.consume(ctx)
	return g, nil
}

// consume joins again after each rebalance, as sarama wants its users to, and after every error but a fence.
func (g *group) consume(ctx context.Context) {
	defer close(g.ended)
	for ctx.Err() == nil {
		err := g.group.Consume(ctx, []string{g.told.Topic}, g)
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			g.finished <- saramaError(err)
			return
		}
		if err != nil && ctx.Err() == nil {
			emit("notice", fields{"text": fmt.Sprintf("Consume: %v", err), "logger": "sarama"})
			time.Sleep(backoff)
		}
	}
}

// Setup begins a session: a generation, or with cooperative members several.
func (g *group) Setup(session sarama.ConsumerGroupSession) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session = session
	return nil
}

// Cleanup ends it.
func (g *group) Cleanup(sarama.ConsumerGroupSession) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session = nil
	return nil
}

// ConsumeClaim lasts as long as a partition is owned.
func (g *group) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	owned := fields{"partitions": []int32{claim.Partition()}}
	g.mu.Lock()
	g.claims[claim.Partition()] = claim
	g.fetches = g.answeredFetches()
	g.mu.Unlock()
	emit("assigned", owned)
	defer func() {
		g.mu.Lock()
		delete(g.claims, claim.Partition())
		g.mu.Unlock()
		emit("revoked", owned)
	}()
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			g.records <- message
		case <-session.Context().Done():
			return nil
		}
	}
}

func (g *group) poll() ([]consumed, *clientError) {
	var found []consumed
	until := time.After(pollTime)
	for {
		select {
		case message := <-g.records:
			one := consumed{message.Partition, message.Offset, record{message.Key, message.Value, nil}}
			for _, each := range message.Headers {
				one.record.headers = append(one.record.headers, header{string(each.Key), each.Value})
			}
			found = append(found, one)
		case failure := <-g.finished:
			return found, failure
		case <-until:
			return found, nil
		}
	}
}

func (g *group) membership() membership {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session == nil {
		return membership{generation: -1}
	}
	var owned []int32
	for partition := range g.claims {
		owned = append(owned, partition)
	}
	slices.Sort(owned)
	return membership{g.session.GenerationID(), g.session.MemberID(), owned}
}

// highWatermarks are 0 before the first Fetch is answered, too; so answers are counted.
func (g *group) highWatermarks() map[int32]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answeredFetches() == g.fetches {
		return nil
	}
	found := map[int32]int64{}
	for partition, claim := range g.claims {
		found[partition] = claim.HighWaterMarkOffset()
	}
	return found
}

func (g *group) answeredFetches() int64 {
	sizes, _ := g.client.Config().MetricRegistry.Get("consumer-fetch-response-size").(metrics.Histogram)
	if sizes == nil {
		return 0
	}
	return sizes.Count()
}

// commit doesn't hear from the client that it was done: errors come on a channel, those that it gets over among them, and
// success is what stands there then.
func (g *group) commit(offsets map[int32]committed) *clientError {
	for len(g.problems) > 0 {
		<-g.problems
	}
	var partitions []int32
	for partition := range offsets {
		partitions = append(partitions, partition)
	}
	for until := time.Now().Add(requestTimeout); time.Now().Before(until); time.Sleep(pollTime) {
		g.mu.Lock()
		session := g.session
		g.mu.Unlock()
		if session != nil {
			for partition, offset := range offsets {
				session.MarkOffset(g.told.Topic, partition, offset.offset, offset.metadata)
				session.ResetOffset(g.told.Topic, partition, offset.offset, offset.metadata)
			}
			session.Commit()
		}
		select {
		case problem := <-g.problems:
			if failure := saramaError(problem); failure.name != unnamed {
				return failure
			}
		case failure := <-g.finished:
			failure.fatal = true
			return failure
		case <-time.After(pollTime):
		}
		found, _ := g.readCommitted(partitions)
		if !slices.ContainsFunc(partitions, func(partition int32) bool { return found[partition] != offsets[partition] }) {
			return nil
		}
	}
	return &clientError{"REQUEST_TIMED_OUT", "not committed", false}
}

func (g *group) readCommitted(partitions []int32) (map[int32]committed, *clientError) {
	admin, err := sarama.NewClusterAdminFromClient(g.client)
	if err != nil {
		return nil, saramaError(err)
	}
	response, err := admin.ListConsumerGroupOffsets(g.told.Group, map[string][]int32{g.told.Topic: partitions})
	if err != nil {
		return nil, saramaError(err)
	}
	found := map[int32]committed{}
	for _, partition := range partitions {
		if block := response.GetBlock(g.told.Topic, partition); block != nil && block.Offset >= 0 {
			found[partition] = committed{block.Offset, block.Metadata}
		}
	}
	return found, nil
}

func (g *group) produce(records []record, compression string) *clientError {
	codecs := map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Compression = codecs[compression]
	producer, err := sarama.NewSyncProducer([]string{g.told.Bootstrap}, config)
	if err != nil {
		return saramaError(err)
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, each := range records {
		message := &sarama.ProducerMessage{Topic: g.told.Topic}
		if each.key != nil {
			message.Key = sarama.ByteEncoder(each.key)
		}
		if each.value != nil {
			message.Value = sarama.ByteEncoder(each.value)
		}
		for _, h := range each.headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.name), Value: h.value})
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return saramaError(err)
	}
	return nil
}

func (g *group) close() {
	g.stop()
	<-g.ended
	if err := g.group.Close(); err != nil {
		emit("notice", fields{"text": fmt.Sprintf("Close: %v", err), "logger": "sarama"})
	}
	g.client.Close()
}

// saramaError has the names that tests ask for; sarama knows codes and sentences.
func saramaError(err error) *clientError {
	names := map[sarama.KError]string{
		sarama.ErrFencedInstancedId:      "FENCED_INSTANCE_ID",
		sarama.ErrOffsetMetadataTooLarge: "OFFSET_METADATA_TOO_LARGE",
		sarama.ErrUnknownMemberId:        "UNKNOWN_MEMBER_ID",
		sarama.ErrIllegalGeneration:      "ILLEGAL_GENERATION",
		sarama.ErrRebalanceInProgress:    "REBALANCE_IN_PROGRESS",
	}
	var code sarama.KError
	if errors.As(err, &code) && names[code] != "" {
		return &clientError{names[code], err.Error(), false}
	}
	return &clientError{unnamed, err.Error(), false}
}
