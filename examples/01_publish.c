/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes one record and waits until it is stored.
 *   01_publish BROKERS TOPIC VALUE
 */
#include <stdio.h>
#include <string.h>

#include <flashq/flashq.h>

int main(int argc, char **argv)
{
    char text[512];
    flashq_client *client = NULL;
    flashq_producer *producer;
    flashq_report report;
    if (argc != 4) {
        fprintf(stderr, "usage: 01_publish BROKERS TOPIC VALUE\n");
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
        flashq_record record = {.struct_bytes = sizeof record, .partition = FLASHQ_PARTITION_ANY,
                                .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .value = argv[3],
                                .value_length = strlen(argv[3])};
        code = flashq_send_sync(producer, &record, 5000, &report);
        if (code != 0) {
            (void)flashq_producer_last_error(producer, text, sizeof text);
        }
    }
    if (code == 0) {
        printf("stored in partition %d at offset %lld\n", report.partition, (long long)report.offset);
    } else {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000); /* closes the producer too */
    return code == 0 ? 0 : 1;
}
