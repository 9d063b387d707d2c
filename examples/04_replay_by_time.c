/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes ten records with timestamps of their own, asks where a time is, and replays from there.
 *   04_replay_by_time BROKERS TOPIC     (a topic that is empty)
 */
#include <stdio.h>
#include <string.h>

#include <flashq/flashq.h>

#define FIRST_MS INT64_C(1700000000000)

static int publish(flashq_client *client, const char *topic, char *text, size_t text_bytes)
{
    flashq_producer *producer;
    int code = flashq_producer_open(client, topic, 5000, &producer, text, text_bytes);
    for (int i = 0; code == 0 && i < 10; i++) {
        char value[16];
        flashq_record record = {.struct_bytes = sizeof record, .partition = 0,
                                .timestamp_ms = FIRST_MS + 1000 * i, .value = value};
        record.value_length = (size_t)snprintf(value, sizeof value, "second %d", i);
        code = flashq_send(producer, &record, 5000);
    }
    return code == 0 ? flashq_producer_close(producer, 5000, NULL) : code;
}

static int replay(flashq_client *client, const char *topic, int64_t from_ms, char *text,
                  size_t text_bytes)
{
    flashq_consumer *consumer;
    const flashq_message *messages[16];
    int code = flashq_consumer_open(client, &consumer, text, text_bytes), count;
    if (code == 0) {
        code = flashq_consumer_assign(consumer, topic, 0, FLASHQ_OFFSET_START, 5000, text, text_bytes);
    }
    if (code == 0) {
        code = flashq_seek_time(consumer, topic, 0, from_ms, 5000);
    }
    while (code == 0 && (count = flashq_consumer_poll(consumer, messages, 16, 200)) > 0) {
        for (int i = 0; i < count; i++) {
            printf("%.*s\n", (int)messages[i]->value_length, (const char *)messages[i]->value);
        }
    }
    return code;
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client = NULL;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    int64_t from_ms = FIRST_MS + 6500; /* between two records */
    if (argc != 3) {
        fprintf(stderr, "usage: 04_replay_by_time BROKERS TOPIC\n");
        return 2;
    }

    flashq_config *config = flashq_config_new();
    int code = flashq_config_set(config, "brokers", argv[1], text, sizeof text);
    if (code == 0) {
        code = flashq_client_open(config, &client, text, sizeof text);
    }
    flashq_config_free(config);
    if (code == 0) {
        code = publish(client, argv[2], text, sizeof text);
    }
    if (code == 0) {
        code = flashq_offset_for_time(client, argv[2], 0, from_ms, 5000, &answer, text, sizeof text);
    }
    if (code == 0) {
        printf("the first record at or after %lld is at offset %lld\n", (long long)from_ms,
               (long long)answer.offset);
        code = replay(client, argv[2], from_ms, text, sizeof text);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000);
    return code == 0 ? 0 : 1;
}
