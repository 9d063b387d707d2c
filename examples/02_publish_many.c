/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes COUNT records as fast as they are taken, with keys and a header, and looks at the reports.
 *   02_publish_many BROKERS TOPIC COUNT
 */
#include <stdio.h>
#include <stdlib.h>

#include <flashq/flashq.h>

static long failed;

static void look_at_reports(flashq_producer *producer)
{
    flashq_report reports[100];
    int count;
    while ((count = flashq_producer_poll(producer, reports, 100, 0)) > 0) {
        for (int i = 0; i < count; i++) {
            if (reports[i].status != 0) {
                failed++;
                fprintf(stderr, "record %ld: %s\n", (long)(size_t)reports[i].user,
                        flashq_strerror(reports[i].status));
            }
        }
    }
}

static int publish(flashq_producer *producer, long count)
{
    static const flashq_header header = {"made-by", 0, "example", 7};
    for (long i = 0; i < count; i++) {
        char key[32], value[64];
        flashq_record record = {.struct_bytes = sizeof record, .partition = FLASHQ_PARTITION_ANY,
                                .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .key = key, .value = value,
                                .headers = &header, .headers_count = 1, .user = (void *)(size_t)i};
        record.key_length = (size_t)snprintf(key, sizeof key, "key-%ld", i % 10);
        record.value_length = (size_t)snprintf(value, sizeof value, "value %ld", i);
        int code = flashq_send(producer, &record, 10000); /* waits only while the queue is full */
        if (code != 0) {
            return code;
        }
        if (i % 1000 == 0) {
            look_at_reports(producer);
        }
    }
    return flashq_flush(producer, 30000);
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client = NULL;
    flashq_producer *producer = NULL;
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    if (argc != 4) {
        fprintf(stderr, "usage: 02_publish_many BROKERS TOPIC COUNT\n");
        return 2;
    }

    flashq_config *config = flashq_config_new();
    int code = flashq_config_set(config, "brokers", argv[1], text, sizeof text);
    if (code == 0) {
        code = flashq_config_set(config, "compression.type", "lz4", text, sizeof text);
    }
    if (code == 0) {
        code = flashq_client_open(config, &client, text, sizeof text);
    }
    flashq_config_free(config);
    if (code == 0) {
        code = flashq_producer_open(client, argv[2], 5000, &producer, text, sizeof text);
    }
    if (code == 0) {
        code = publish(producer, atol(argv[3]));
        look_at_reports(producer);
        (void)flashq_producer_last_error(producer, text, sizeof text);
        (void)flashq_producer_get_stats(producer, &stats);
        printf("%llu records acknowledged in %llu batches\n", (unsigned long long)stats.records_acked,
               (unsigned long long)stats.batches_sent);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000);
    return code == 0 && failed == 0 ? 0 : 1;
}
