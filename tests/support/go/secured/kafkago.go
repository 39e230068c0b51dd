//go:build kafkago

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func init() {
	clients["kafka-go"] = viaKafkaGo
	clients["kafka-go-acls"] = aclsByKafkaGo
}

// transport gives the connections of kafka-go.
func transport(security *tls.Config, credentials *login) *kafka.Transport {
	found := &kafka.Transport{TLS: security}
	if credentials == nil {
		return found
	}
	var mechanism sasl.Mechanism = plain.Mechanism{Username: credentials.user, Password: credentials.password}
	if credentials.mode == "scram" {
		var err error
		mechanism, err = scram.Mechanism(scram.SHA256, credentials.user, credentials.password)
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
