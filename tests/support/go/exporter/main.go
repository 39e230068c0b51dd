// Reads a cluster as exporters of metrics do, or copies a topic exactly once.
//
//	exporter sarama BROKER
//	exporter franz BROKER
//	exporter copy BROKERS SOURCE TARGET GROUP
//
// The first two print one JSON object: the brokers, the partitions of all topics with their offsets, and the groups with the lag of their
// partitions. They send the requests of kafka_exporter, which uses sarama, and of exporters that use franz-go. The last one copies in
// transactions until its standard input ends, and prints "ready" when it has the first partitions.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

type partition struct {
	Partition int32   `json:"partition"`
	Start     int64   `json:"start"`
	End       int64   `json:"end"`
	Leader    int32   `json:"leader"`
	Replicas  []int32 `json:"replicas"`
	Isr       []int32 `json:"isr"`
}

type group struct {
	State   string                      `json:"state"`
	Members int                         `json:"members"`
	Lag     map[string]map[string]int64 `json:"lag"`
}

type found struct {
	Brokers    []int32                `json:"brokers"`
	Controller int32                  `json:"controller"`
	Topics     map[string][]partition `json:"topics"`
	Groups     map[string]group       `json:"groups"`
}

func main() {
	broker := os.Args[2]
	switch os.Args[1] {
	case "sarama":
		show(bySarama(broker))
	case "franz":
		show(byFranz(broker))
	case "copy":
		copyTopic(broker, os.Args[3], os.Args[4], os.Args[5])
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(what found) {
	check(json.NewEncoder(os.Stdout).Encode(what))
}

func number(of int32) string { return fmt.Sprint(of) }

func bySarama(address string) found {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	client, err := sarama.NewClient([]string{address}, config)
	check(err)
	defer client.Close()
	what := found{Topics: map[string][]partition{}, Groups: map[string]group{}}
	controller, err := client.Controller()
	check(err)
	what.Controller = controller.ID()
	for _, each := range client.Brokers() {
		what.Brokers = append(what.Brokers, each.ID())
	}
	topics, err := client.Topics()
	check(err)
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		check(err)
		for _, index := range partitions {
			what.Topics[topic] = append(what.Topics[topic], partitionBySarama(client, topic, index))
		}
	}
	for _, each := range client.Brokers() {
		if connected, _ := each.Connected(); !connected {
			check(each.Open(client.Config()))
		}
		groupsBySarama(each, what)
	}
	return what
}

func partitionBySarama(client sarama.Client, topic string, index int32) partition {
	leader, err := client.Leader(topic, index)
	check(err)
	end, err := client.GetOffset(topic, index, sarama.OffsetNewest)
	check(err)
	start, err := client.GetOffset(topic, index, sarama.OffsetOldest)
	check(err)
	replicas, err := client.Replicas(topic, index)
	check(err)
	isr, err := client.InSyncReplicas(topic, index)
	check(err)
	return partition{index, start, end, leader.ID(), replicas, isr}
}

// groupsBySarama adds the groups of which the broker is the coordinator.
func groupsBySarama(broker *sarama.Broker, what found) {
	listed, err := broker.ListGroups(&sarama.ListGroupsRequest{})
	check(err)
	names := []string{}
	for name := range listed.Groups {
		names = append(names, name)
	}
	described, err := broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: names})
	check(err)
	for _, each := range described.Groups {
		asked := sarama.OffsetFetchRequest{ConsumerGroup: each.GroupId, Version: 1}
		for topic, partitions := range what.Topics {
			for _, one := range partitions {
				asked.AddPartition(topic, one.Partition)
			}
		}
		committed, err := broker.FetchOffset(&asked)
		check(err)
		lag := map[string]map[string]int64{}
		for topic, blocks := range committed.Blocks {
			for index, block := range blocks {
				check(kafkaError(block.Err))
				if block.Offset >= 0 {
					add(lag, topic, index, what.Topics[topic][index].End-block.Offset)
				}
			}
		}
		what.Groups[each.GroupId] = group{each.State, len(each.Members), lag}
	}
}

func kafkaError(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}

func add(lag map[string]map[string]int64, topic string, index int32, behind int64) {
	if lag[topic] == nil {
		lag[topic] = map[string]int64{}
	}
	lag[topic][number(index)] = behind
}

func byFranz(address string) found {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	metadata, err := admin.Metadata(ctx)
	check(err)
	what := found{Brokers: metadata.Brokers.NodeIDs(), Controller: metadata.Controller, Topics: map[string][]partition{}, Groups: map[string]group{}}
	starts, err := admin.ListStartOffsets(ctx)
	check(err)
	ends, err := admin.ListEndOffsets(ctx)
	check(err)
	for _, topic := range metadata.Topics.Sorted() {
		for _, each := range topic.Partitions.Sorted() {
			start, _ := starts.Lookup(topic.Topic, each.Partition)
			end, _ := ends.Lookup(topic.Topic, each.Partition)
			shown := partition{each.Partition, start.Offset, end.Offset, each.Leader, each.Replicas, each.ISR}
			what.Topics[topic.Topic] = append(what.Topics[topic.Topic], shown)
		}
	}
	logDirs, err := admin.DescribeAllLogDirs(ctx, nil)
	check(err)
	logDirs.Each(func(each kadm.DescribedLogDir) { check(each.Err) })
	configs, err := admin.DescribeTopicConfigs(ctx, metadata.Topics.Names()...)
	check(err)
	for _, each := range configs {
		check(each.Err)
	}
	described, err := admin.Lag(ctx)
	check(err)
	for _, each := range described.Sorted() {
		check(each.Error())
		lag := map[string]map[string]int64{}
		for _, member := range each.Lag.Sorted() {
			if member.Commit.At >= 0 {
				add(lag, member.Topic, member.Partition, member.Lag)
			}
		}
		what.Groups[each.Group] = group{each.State, len(each.Members), lag}
	}
	return what
}

func copyTopic(addresses, source, target, name string) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(addresses, ",")...),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.TransactionalID(name+"-copier"),
		kgo.TransactionTimeout(20*time.Second),
		kgo.DefaultProduceTopic(target),
		kgo.RequireStableFetchOffsets(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { fmt.Println("ready") }),
	)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := session.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		reportErrors(fetches)
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		copied := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: []byte(strings.ToUpper(string(record.Value)))}, copied.Promise())
		})
		isWhole := copied.Err() == nil
		if _, err := session.End(ctx, kgo.TransactionEndTry(isWhole)); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "the transaction ended with:", err)
		}
	}
	session.Close()
}

func reportErrors(fetches kgo.Fetches) {
	seen := []string{}
	fetches.EachError(func(topic string, index int32, err error) {
		seen = append(seen, fmt.Sprintf("%s-%d: %v", topic, index, err))
	})
	sort.Strings(seen)
	for _, each := range seen {
		fmt.Fprintln(os.Stderr, each)
	}
}
