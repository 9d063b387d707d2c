/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the verbs back end in builds without it: fq_fabric_create answers UNSUPPORTED. */
#include "fabric/backend.h"

const struct fq_fabric_ops *fq_verbs_ops(void)
{
    return NULL;
}
