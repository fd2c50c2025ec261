/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A cap on costs crosses the wire in 11 bits: never more than was said, never less by over 1/64, never "no cap".
 * Method   Every code; caps around every code's value, and random ones.
 */
#include "ipc/wire.h"
#include "tests/leat_test.h"

static void
check(uint32_t nano)
{
    const uint16_t code = leat_wire_cost_code(nano);
    const uint32_t back = leat_wire_cost_nano(code);

    EXPECT(code <= LEAT_WIRE_COST_MAX);
    EXPECT(back <= nano && nano - back <= nano / 64 && (back == 0) == (nano == 0));
}

int
main(void)
{
    uint32_t before = 0;

    leat_test_init();
    for (uint32_t code = 0; code <= LEAT_WIRE_COST_MAX; code++) {
        const uint32_t nano = leat_wire_cost_nano((uint16_t)code);
        EXPECT(code == 0 ? nano == 0 : nano > before || nano == UINT32_MAX);
        EXPECT(nano == UINT32_MAX || leat_wire_cost_code(nano) == code);
        before = nano;
        check(nano - (nano > 0));
        check(nano);
        check(nano + (nano < UINT32_MAX));
    }
    for (uint32_t n = 0; n < 1000000; n++) {
        check((uint32_t)leat_test_random(&leat_test_seed) >> leat_test_random(&leat_test_seed) % 32);
    }
    return 0;
}
