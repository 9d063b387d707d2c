/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for records in an event loop of its own: poll(2) on the client's descriptor beside any others.
 * Ends after COUNT records.
 *   06_event_loop BROKERS TOPIC COUNT
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <flashq/flashq.h>

static int loop(flashq_client *client, flashq_consumer *consumer, long count)
{
    struct pollfd descriptors[1] = {{.fd = flashq_client_fd(client), .events = POLLIN}};
    while (count > 0) {
        const flashq_message *messages[16];
        int found = flashq_consumer_poll(consumer, messages, 16, 0); /* never waits here ... */
        if (found < 0) {
            return found;
        }
        for (int i = 0; i < found && count > 0; i++, count--) {
            if (messages[i]->status != 0) { /* a condition of the partition, not a record */
                return messages[i]->status;
            }
            printf("%.*s\n", (int)messages[i]->value_length,
                   messages[i]->value ? (const char *)messages[i]->value : "");
        }
        if (found == 0 && poll(descriptors, 1, 5000) == 0) { /* ... but here, with everything else */
            return FLASHQ_ERR_TIMED_OUT;
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
        fprintf(stderr, "usage: 06_event_loop BROKERS TOPIC COUNT\n");
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
        code = loop(client, consumer, atol(argv[3]));
        (void)flashq_consumer_last_error(consumer, text, sizeof text);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000);
    return code == 0 ? 0 : 1;
}
