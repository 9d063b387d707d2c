/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates a topic, describes it, lists its configuration, deletes it.
 *   05_topics BROKERS TOPIC
 */
#include <stdio.h>

#include <flashq/flashq.h>

static int describe(flashq_client *client, const char *topic, char *text, size_t text_bytes)
{
    flashq_topic_info info;
    flashq_partition_info *partitions;
    flashq_config_entry *entries;
    size_t count;
    int code = flashq_topic_describe(client, topic, 5000, &info, &partitions, &count, text, text_bytes);
    if (code != 0) {
        return code;
    }
    printf("topic %s, %d partitions\n", info.name, info.partitions);
    for (size_t i = 0; i < count; i++) {
        printf("  %d: offsets %lld to %lld on %s\n", partitions[i].partition,
               (long long)partitions[i].start_offset, (long long)partitions[i].end_offset,
               partitions[i].medium);
    }
    flashq_free(partitions);
    code = flashq_topic_config(client, topic, 5000, &entries, &count, text, text_bytes);
    for (size_t i = 0; code == 0 && i < count; i++) {
        printf("  %s = %s (%s)\n", entries[i].key, entries[i].value, entries[i].source);
    }
    if (code == 0) {
        flashq_free(entries);
    }
    return code;
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client = NULL;
    static const flashq_pair configs[] = {{"retention.bytes", "1GiB"}, {"message.max.bytes", "64KiB"}};
    if (argc != 3) {
        fprintf(stderr, "usage: 05_topics BROKERS TOPIC\n");
        return 2;
    }

    flashq_config *config = flashq_config_new();
    int code = flashq_config_set(config, "brokers", argv[1], text, sizeof text);
    if (code == 0) {
        code = flashq_client_open(config, &client, text, sizeof text);
    }
    flashq_config_free(config);
    if (code == 0) {
        code = flashq_topic_create(client, argv[2], 3, 0, configs, 2, 5000, text, sizeof text);
    }
    if (code == 0) {
        code = describe(client, argv[2], text, sizeof text);
    }
    if (code == 0) {
        code = flashq_topic_delete(client, argv[2], 5000, text, sizeof text);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", flashq_error_name(code), text);
    }
    (void)flashq_client_close(client, 1000);
    return code == 0 ? 0 : 1;
}
