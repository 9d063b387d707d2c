/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints COUNT records of all partitions of a topic from the start, and waits for them if need be.
 *   03_consume BROKERS TOPIC COUNT
 */
#include <stdio.h>
#include <stdlib.h>

#include <flashq/flashq.h>

static void print(const flashq_message *message)
{
    flashq_header header;
    printf("%d@%lld ", message->partition, (long long)message->offset);
    if (message->key) {
        printf("%.*s=", (int)message->key_length, (const char *)message->key);
    }
    printf("%.*s", (int)message->value_length, message->value ? (const char *)message->value : "");
    for (size_t i = 0; flashq_message_header(message, i, &header) == 0; i++) {
        printf(" [%.*s]", (int)header.name_length, header.name);
    }
    printf("\n");
}

static int consume(flashq_consumer *consumer, long count)
{
    while (count > 0) {
        const flashq_message *messages[64];
        int found = flashq_consumer_poll(consumer, messages, 64, 5000);
        if (found <= 0) {
            return found < 0 ? found : FLASHQ_ERR_TIMED_OUT;
        }
        for (int i = 0; i < found && count > 0; i++) {
            if (messages[i]->status != 0) { /* a condition of the partition, not a record */
                return messages[i]->status;
            }
            print(messages[i]); /* borrowed: valid until the next poll */
            count--;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client = NULL;
    flashq_consumer *consumer = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: 03_consume BROKERS TOPIC COUNT\n");
        return 2;
    }

    flashq_config *config = flashq_config_new();
    int code = flashq_config_set(config, "brokers", argv[1], text, sizeof text);
    if (code == 0) {
        code = flashq_client_open(config, &client, text, sizeof text);
    }
    flashq_config_free(config);
    if (code == 0) {
        code = flashq_consumer_open(client, &consumer, text, sizeof text);
    }
    if (code == 0) {
        code = flashq_consumer_assign(consumer, argv[2], -1, FLASHQ_OFFSET_START, 5000, text,
                                      sizeof text);
    }
    if (code == 0) {
        code = consume(consumer, atol(argv[3]));
        (void)flashq_consumer_last_error(consumer, text, sizeof text);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000);
    return code == 0 ? 0 : 1;
}
