// Drives franz-go, a Kafka client in Go, as its users do.
//
//	franz_load produce BOOTSTRAP TOPIC MESSAGES
//	    writes that many messages of 100 bytes, everything else franz-go's default (idempotent, acks=all, snappy)
//	franz_load consume BOOTSTRAP TOPIC MESSAGES
//	    reads that many messages from the beginning, as the only member of a group
//
// Prints {"messages":N} when all of them are acknowledged or read.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	messageBytes = 100
	silent       = 30 * time.Second
)

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "franz_load: %s: %v\n", what, why)
	os.Exit(2)
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	if err != nil {
		fail("client", err)
	}
	return made
}

func produce(bootstrap, topic string, messages int) int64 {
	producer := client(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(silent))
	defer producer.Close()
	value := make([]byte, messageBytes)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	var acknowledged atomic.Int64
	for i := 0; i < messages; i++ {
		producer.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				fail("produce", err)
			}
			acknowledged.Add(1)
		})
	}
	if err := producer.Flush(context.Background()); err != nil {
		fail("flush", err)
	}
	return acknowledged.Load()
}

func consume(bootstrap, topic string, messages int) int64 {
	group := fmt.Sprintf("franz-%d-%d", os.Getpid(), time.Now().UnixNano())
	consumer := client(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer consumer.Close()
	var got int64
	for got < int64(messages) {
		waiting, cancel := context.WithTimeout(context.Background(), silent)
		fetched := consumer.PollFetches(waiting)
		cancel()
		if errors := fetched.Errors(); len(errors) > 0 {
			fail("consume", errors[0].Err)
		}
		got += int64(fetched.NumRecords())
	}
	return got
}

func main() {
	if len(os.Args) != 5 {
		fail("usage", "franz_load produce|consume BOOTSTRAP TOPIC MESSAGES")
	}
	messages, err := strconv.Atoi(os.Args[4])
	if err != nil || messages < 1 {
		fail("messages", os.Args[4])
	}
	work := map[string]func(string, string, int) int64{"produce": produce, "consume": consume}[os.Args[1]]
	if work == nil {
		fail("usage", os.Args[1])
	}
	fmt.Printf("{\"messages\":%d}\n", work(os.Args[2], os.Args[3], messages))
}
