// Writes records to a secured cluster and reads them back, by franz-go, sarama or kafka-go.
//
//	secured LIBRARY BROKER TOPIC COUNT CA scram USER PASSWORD
//	secured LIBRARY BROKER TOPIC COUNT CA plain USER PASSWORD
//	secured LIBRARY BROKER TOPIC COUNT CA oauthbearer USER TOKEN
//	secured LIBRARY BROKER TOPIC COUNT CA mutual CERTIFICATE KEY
//
// It prints the number of records that came back whole and in order. LIBRARY is franz, sarama or kafka-go, which has no OAUTHBEARER. CA,
// CERTIFICATE and KEY are PEM files. With kafka-go-acls it creates, describes and deletes COUNT ACLs of the topic instead, and prints how
// many it deleted.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	kafkaplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkascram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

const patience = 60 * time.Second

// login has a token in place of the password where the mode is oauthbearer.
type login struct{ mode, user, password string }

// Token makes a login the provider of tokens that sarama wants.
func (l *login) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: l.password}, nil
}

func main() {
	library, broker, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	security, credentials := secured(os.Args[5], os.Args[6], os.Args[7], os.Args[8])
	clients := map[string]func(string, string, int, *tls.Config, *login) int{
		"franz":         franz,
		"sarama":        viaSarama,
		"kafka-go":      viaKafkaGo,
		"kafka-go-acls": aclsByKafkaGo,
	}
	fmt.Println(clients[library](broker, topic, count, security, credentials))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value(number int) string { return fmt.Sprintf("record %06d", number) }

// secured gives the TLS of connections, and the login unless the mode is mutual.
func secured(authority, mode, first, second string) (*tls.Config, *login) {
	trusted, err := os.ReadFile(authority)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	found := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	if mode != "mutual" {
		return found, &login{mode, first, second}
	}
	certificate, err := tls.LoadX509KeyPair(first, second)
	check(err)
	found.Certificates = []tls.Certificate{certificate}
	return found, nil
}

func franz(broker, topic string, count int, security *tls.Config, credentials *login) int {
	options := []kgo.Opt{
		kgo.SeedBrokers(broker),
		kgo.DialTLSConfig(security),
		kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if credentials != nil {
		switch credentials.mode {
		case "scram":
			options = append(options, kgo.SASL(scram.Auth{User: credentials.user, Pass: credentials.password}.AsSha256Mechanism()))
		case "plain":
			options = append(options, kgo.SASL(plain.Auth{User: credentials.user, Pass: credentials.password}.AsMechanism()))
		case "oauthbearer":
			options = append(options, kgo.SASL(oauth.Auth{Token: credentials.password}.AsMechanism()))
		}
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for number := 0; number < count; number++ {
		client.Produce(ctx, kgo.StringRecord(value(number)), func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))
	read := 0
	for read < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			if string(record.Value) == value(read) {
				read++
			}
		})
	}
	return read
}

func viaSarama(broker, topic string, count int, security *tls.Config, credentials *login) int {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = security
	if credentials != nil {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = map[string]sarama.SASLMechanism{
			"scram":       sarama.SASLTypeSCRAMSHA256,
			"plain":       sarama.SASLTypePlaintext,
			"oauthbearer": sarama.SASLTypeOAuth,
		}[credentials.mode]
		config.Net.SASL.User, config.Net.SASL.Password = credentials.user, credentials.password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{} }
		config.Net.SASL.TokenProvider = credentials
	}
	producer, err := sarama.NewSyncProducer([]string{broker}, config)
	check(err)
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value(number))}
	}
	check(producer.SendMessages(messages))
	consumer, err := sarama.NewConsumer([]string{broker}, config)
	check(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	read := 0
	for deadline := time.After(patience); read < count; {
		select {
		case message := <-partition.Messages():
			if string(message.Value) == value(read) {
				read++
			}
		case <-deadline:
			return read
		}
	}
	return read
}

// transport gives the connections of kafka-go.
func transport(security *tls.Config, credentials *login) *kafka.Transport {
	found := &kafka.Transport{TLS: security}
	if credentials == nil {
		return found
	}
	var mechanism sasl.Mechanism = kafkaplain.Mechanism{Username: credentials.user, Password: credentials.password}
	if credentials.mode == "scram" {
		var err error
		mechanism, err = kafkascram.Mechanism(kafkascram.SHA256, credentials.user, credentials.password)
		check(err)
	}
	found.SASL = mechanism
	return found
}

func viaKafkaGo(broker, topic string, count int, security *tls.Config, credentials *login) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	secure := transport(security, credentials)
	client := &kafka.Client{Addr: kafka.TCP(broker), Transport: secure}
	_, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	check(err)
	writer := &kafka.Writer{
		Addr: kafka.TCP(broker), Topic: topic, Transport: secure, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
	}
	defer writer.Close()
	messages := make([]kafka.Message, count)
	for number := range messages {
		messages[number] = kafka.Message{Value: []byte(value(number))}
	}
	check(writer.WriteMessages(ctx, messages...))
	dialer := &kafka.Dialer{TLS: security, SASLMechanism: secure.SASL, Timeout: patience}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic, Dialer: dialer, MaxBytes: 1 << 20})
	defer reader.Close()
	read := 0
	for read < count {
		message, err := reader.ReadMessage(ctx)
		check(err)
		if string(message.Value) == value(read) {
			read++
		}
	}
	return read
}

func aclsByKafkaGo(broker, topic string, count int, security *tls.Config, credentials *login) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(broker), Transport: transport(security, credentials)}
	entries := make([]kafka.ACLEntry, count)
	for number := range entries {
		entries[number] = kafka.ACLEntry{
			ResourceType:        kafka.ResourceTypeTopic,
			ResourceName:        topic,
			ResourcePatternType: kafka.PatternTypeLiteral,
			Principal:           fmt.Sprintf("User:u%d", number),
			Host:                "*",
			Operation:           kafka.ACLOperationTypeRead,
			PermissionType:      kafka.ACLPermissionTypeAllow,
		}
	}
	created, err := client.CreateACLs(ctx, &kafka.CreateACLsRequest{ACLs: entries})
	check(err)
	for _, failed := range created.Errors {
		check(failed)
	}
	described, err := client.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
		ResourceTypeFilter:        kafka.ResourceTypeTopic,
		ResourceNameFilter:        topic,
		ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
		Operation:                 kafka.ACLOperationTypeAny,
		PermissionType:            kafka.ACLPermissionTypeAny,
	}})
	check(err)
	check(described.Error)
	if len(described.Resources) != 1 || len(described.Resources[0].ACLs) != count {
		check(fmt.Errorf("described are %v", described.Resources))
	}
	deleted, err := client.DeleteACLs(ctx, &kafka.DeleteACLsRequest{Filters: []kafka.DeleteACLsFilter{{
		ResourceTypeFilter:        kafka.ResourceTypeTopic,
		ResourceNameFilter:        topic,
		ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
		Operation:                 kafka.ACLOperationTypeAny,
		PermissionType:            kafka.ACLPermissionTypeAny,
	}}})
	check(err)
	check(deleted.Results[0].Error)
	return len(deleted.Results[0].MatchingACLs)
}

// conversation is a SCRAM exchange as sarama wants it.
type conversation struct{ *xdg.ClientConversation }

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := xdg.SHA256.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
