/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes COUNT records whose values are written where they stay (over shared memory, in the broker's ring), then
 * as many that are sent in one call.
 *   07_build_in_place BROKERS TOPIC COUNT
 */
#include <stdio.h>
#include <stdlib.h>

#include <flashq/flashq.h>

enum { VALUE_MOST = 64, TOGETHER = 100 };

static const flashq_record blank = {.struct_bytes = sizeof blank, .partition = FLASHQ_PARTITION_ANY,
                                    .timestamp_ms = FLASHQ_TIMESTAMP_NOW};

static int build(flashq_producer *producer, long count)
{
    for (long i = 0; i < count; i++) {
        void *value;
        int code = flashq_claim(producer, &blank, VALUE_MOST, 10000, &value);
        if (code != 0) {
            return code;
        }
        int length = snprintf(value, VALUE_MOST, "built %ld", i);
        if (length < 0) {
            return flashq_abort(producer); /* as if it had never been claimed */
        }
        code = flashq_commit(producer, (size_t)length);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static int send_together(flashq_producer *producer, long count)
{
    for (long i = 0; i < count;) {
        char values[TOGETHER][VALUE_MOST];
        flashq_record records[TOGETHER];
        size_t filled = 0;
        for (; filled < TOGETHER && i + (long)filled < count; filled++) {
            records[filled] = blank;
            records[filled].value = values[filled];
            records[filled].value_length = (size_t)snprintf(values[filled], VALUE_MOST, "sent %ld",
                                                            i + (long)filled);
        }
        int64_t taken = flashq_sendv(producer, records, filled, 10000);
        if (taken < 0) {
            return (int)taken;
        }
        i += (long)taken; /* what was not taken is tried again */
    }
    return 0;
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client = NULL;
    flashq_producer *producer = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: 07_build_in_place BROKERS TOPIC COUNT\n");
        return 2;
    }

    flashq_config *config = flashq_config_new();
    int code = flashq_config_set(config, "brokers", argv[1], text, sizeof text);
    if (code == 0) {
        code = flashq_client_open(config, &client, text, sizeof text);
    }
    flashq_config_free(config);
    if (code == 0) {
        code = flashq_producer_open(client, argv[2], 5000, &producer, text, sizeof text);
    }
    if (code == 0) {
        code = build(producer, atol(argv[3]));
    }
    if (code == 0) {
        code = send_together(producer, atol(argv[3]));
    }
    if (code == 0) {
        code = flashq_flush(producer, 30000);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_strerror(code), text);
    }
    int64_t undelivered = flashq_client_close(client, 5000);
    return code == 0 && undelivered == 0 ? 0 : 1;
}
