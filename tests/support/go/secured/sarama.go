//go:build sarama

package main

import (
	"crypto/tls"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

func init() { clients["sarama"] = viaSarama }

// Token makes a login the provider of tokens that sarama wants.
func (l *login) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: l.password}, nil
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

// conversation is a SCRAM exchange as sarama wants it.
type conversation struct{ *scram.ClientConversation }

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := scram.SHA256.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
