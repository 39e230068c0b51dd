// Drives sarama, a Kafka client in Go, as programs of before 2017 do: with the protocol of an old version.
//
//	sarama VERSION BOOTSTRAP TOPIC MESSAGES
//	    writes that many messages to partition 0 with every codec of the version and every acks, then reads all of the topic:
//	    as a member of the group TOPIC from version 0.10.2.0 on, before that by partition, and commits the end for that group
//
// Prints each message as CODEC, a tab, ACKS and NUMBER; and last the offset that is committed for the group.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

const silent = 30 * time.Second

var (
	codecs = []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
	}
	acks = []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal, sarama.WaitForAll}
)

func check(what string, err error) {
	if err != nil {
		fail(what, err)
	}
}

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "sarama: %s: %v\n", what, why)
	os.Exit(2)
}

func configured(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.ApiVersionsRequest = false
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func produce(bootstrap, topic string, config *sarama.Config, messages int) {
	config.Producer.Flush.Messages = messages
	config.Producer.Flush.Frequency = 100 * time.Millisecond
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	check("producer", err)
	batch := make([]*sarama.ProducerMessage, messages)
	for number := range batch {
		value := fmt.Sprintf("%d %d", config.Producer.RequiredAcks, number)
		key := config.Producer.Compression.String()
		batch[number] = &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value)}
	}
	check("produce", producer.SendMessages(batch))
	check("close", producer.Close())
}

func show(message *sarama.ConsumerMessage) {
	fmt.Printf("%s\t%s\n", message.Key, message.Value)
}

// member is in a group, and leaves it when it has read enough.
type member struct {
	left  int
	leave context.CancelFunc
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		show(message)
		session.MarkMessage(message, "")
		if m.left--; m.left == 0 {
			m.leave()
			return nil
		}
	}
	return nil
}

func consumeAsMember(client sarama.Client, topic string, messages int) {
	group, err := sarama.NewConsumerGroupFromClient(topic, client)
	check("group", err)
	ended, leave := context.WithTimeout(context.Background(), silent)
	defer leave()
	reader := &member{left: messages, leave: leave}
	for ended.Err() == nil {
		if err := group.Consume(ended, []string{topic}, reader); err != nil && ended.Err() == nil {
			fail("group", err)
		}
	}
	if reader.left > 0 {
		fail("group", fmt.Sprintf("%d messages are missing", reader.left))
	}
	check("group", group.Close())
}

func consumePartition(client sarama.Client, topic string, messages int) {
	consumer, err := sarama.NewConsumerFromClient(client)
	check("consumer", err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check("consumer", err)
	var end int64
	for left := messages; left > 0; left-- {
		select {
		case message := <-partition.Messages():
			show(message)
			end = message.Offset + 1
		case <-time.After(silent):
			fail("consumer", fmt.Sprintf("%d messages are missing", left))
		}
	}
	check("consumer", partition.Close())
	manager, committed := managed(client, topic)
	committed.MarkOffset(end, "")
	check("offsets", committed.Close())
	check("offsets", manager.Close())
}

func managed(client sarama.Client, topic string) (sarama.OffsetManager, sarama.PartitionOffsetManager) {
	manager, err := sarama.NewOffsetManagerFromClient(topic, client)
	check("offsets", err)
	partition, err := manager.ManagePartition(topic, 0)
	check("offsets", err)
	return manager, partition
}

func main() {
	if len(os.Args) != 5 {
		fail("usage", "sarama VERSION BOOTSTRAP TOPIC MESSAGES")
	}
	version, err := sarama.ParseKafkaVersion(os.Args[1])
	check("version", err)
	bootstrap, topic := os.Args[2], os.Args[3]
	messages, err := strconv.Atoi(os.Args[4])
	check("messages", err)
	written := 0
	for _, codec := range codecs {
		if codec == sarama.CompressionLZ4 && !version.IsAtLeast(sarama.V0_10_0_0) {
			continue
		}
		for _, each := range acks {
			config := configured(version)
			config.Producer.Compression = codec
			config.Producer.RequiredAcks = each
			produce(bootstrap, topic, config, messages)
			written += messages
		}
	}
	client, err := sarama.NewClient([]string{bootstrap}, configured(version))
	check("client", err)
	if version.IsAtLeast(sarama.V0_10_2_0) {
		consumeAsMember(client, topic, written)
	} else {
		consumePartition(client, topic, written)
	}
	_, committed := managed(client, topic)
	offset, _ := committed.NextOffset()
	fmt.Println(offset)
}
