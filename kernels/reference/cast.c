/* SPDX-License-Identifier: Apache-2.0 */
/* Cast and CastLike: every type to every other; kernels/reference/element.h says how. */
#include "kernels/reference/element.h"

LEAT_REFERENCE_FUNCTION(cast)
{
    const struct leat_value *input = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    const size_t count = leat_value_elements(output);

    for (size_t i = 0; i < count; i++) {
        const struct leat_number number = leat_number_read(input->dtype, in, i);
        leat_number_write(output->dtype, out, i, &number);
    }
    return LEAT_OK;
}
