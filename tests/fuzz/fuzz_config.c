/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as flashqd's configuration, and as a topic's description: loaded or refused with a
 * text. What is accepted must survive being written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf_yaml.h"
#include "coord/topic.h"
#include "options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_topic(const uint8_t *data, size_t size)
{
    struct fq_topic topic, again;
    char text[FQ_TOPIC_TEXT_BYTES_MAX];
    if (fq_topic_decode(data, size, &topic, NULL) == 0) {
        size_t length = fq_topic_encode(&topic, text);
        if (fq_topic_decode(text, length, &again, NULL) != 0 ||
            memcmp(&topic.settings.set_mask, &again.settings.set_mask, sizeof(uint32_t)) != 0 ||
            strcmp(topic.name, again.name) != 0) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fq_options options;
    struct fq_err err;
    fq_err_clear(&err);
    fq_conf_defaults(&fq_options_table, &options);
    int code = fq_conf_load_bytes(&fq_options_table, &options, "fuzz", data, size, &err);
    if (code != 0) {
        if (err.text[0] == '\0') {
            abort(); /* an error without words */
        }
    } else {
        for (size_t i = 0; i < fq_options_table.keys_count; i++) {
            char value[FQ_LIMIT_PATH_BYTES + 1];
            const struct fq_conf_key *key = &fq_options_table.keys[i];
            fq_conf_get(key, &options, value, sizeof value);
            if (fq_conf_set(&fq_options_table, &options, key->name, value, &err) != 0) {
                abort();
            }
        }
        (void)fq_options_check(&options, &err);
    }
    try_topic(data, size);
    return 0;
}
