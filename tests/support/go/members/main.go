// A member of a consumer group with franz-go or sarama, or a copy in sarama's transactions.
//
//	members classic|consumer|sarama BOOTSTRAP GROUP TOPIC
//	members copy BOOTSTRAP GROUP TOPIC TARGET
//
// `classic` and `consumer` are the two protocols of groups with franz-go. A member prints "assigned PARTITION ..." after each change, and each value
// that it has read, and commits it. It leaves the group when its standard input ends. `copy` has a transaction for each record. It aborts every
// third one, and copies the record again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func showAssigned(partitions []int32) {
	slices.Sort(partitions)
	fmt.Println(strings.TrimSpace("assigned " + strings.Trim(fmt.Sprint(partitions), "[]")))
}

func main() {
	kind, bootstrap, group, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	switch kind {
	case "classic", "consumer":
		byFranz(kind, bootstrap, group, topic)
	case "sarama":
		bySarama(bootstrap, group, topic, reader{})
	case "copy":
		config := configuration()
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Transaction.ID = group
		config.Net.MaxOpenRequests = 1
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
		check(err)
		bySarama(bootstrap, group, topic, copier{producer, os.Args[5], group, &sync.Mutex{}})
		check(producer.Close())
	}
}

func byFranz(protocol, bootstrap, group, topic string) {
	var lock sync.Mutex
	owned := map[int32]bool{}
	change := func(by map[string][]int32, has bool) {
		lock.Lock()
		defer lock.Unlock()
		for _, partitions := range by {
			for _, each := range partitions {
				if has {
					owned[each] = true
				} else {
					delete(owned, each)
				}
			}
		}
		partitions := []int32{}
		for each := range owned {
			partitions = append(partitions, each)
		}
		showAssigned(partitions)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { change(added, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { change(lost, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { change(lost, false) }),
		kgo.BlockRebalanceOnPoll(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx := untilInputEnds()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() == nil {
			check(fetches.Err())
		}
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
		check(client.CommitUncommittedOffsets(context.Background()))
		client.AllowRebalance()
	}
	client.Close()
}

func configuration() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func bySarama(bootstrap, group, topic string, handler sarama.ConsumerGroupHandler) {
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, configuration())
	check(err)
	ctx := untilInputEnds()
	for ctx.Err() == nil {
		check(consumer.Consume(ctx, []string{topic}, handler))
	}
	check(consumer.Close())
}

type reader struct{}

func (reader) Setup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		showAssigned(partitions)
	}
	return nil
}

func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		fmt.Println(string(message.Value))
		session.MarkMessage(message, "")
		session.Commit()
	}
	return nil
}

type copier struct {
	producer sarama.SyncProducer
	target   string
	group    string
	lock     *sync.Mutex // partitions are read at the same time, and the producer has one transaction at a time
}

func (copier) Setup(session sarama.ConsumerGroupSession) error { return reader{}.Setup(session) }

func (copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (of copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		of.lock.Lock()
		if message.Offset%3 == 0 {
			check(of.copy(message))
			check(of.producer.AbortTxn())
		}
		check(of.copy(message))
		check(of.producer.CommitTxn())
		of.lock.Unlock()
		fmt.Println(string(message.Value))
	}
	return nil
}

func (of copier) copy(message *sarama.ConsumerMessage) error {
	if err := of.producer.BeginTxn(); err != nil {
		return err
	}
	if _, _, err := of.producer.SendMessage(&sarama.ProducerMessage{Topic: of.target, Value: sarama.ByteEncoder(message.Value)}); err != nil {
		return err
	}
	return of.producer.AddMessageToTxn(message, of.group, nil)
}
