/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Whatever the text of an error was made of, and wherever it was cut, JSON can hold it: characters stay, and what is none, or a
 *          part of one, is as many '?' as it has bytes.
 * Method   Texts by hand; bytes that are drawn, with characters among them; texts of whole characters, cut at each byte.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/json_text.h"
#include "tests/leat_test.h"

static void
expect(const char *text, const char *expected)
{
    json_t *string = leat_json_text(text);

    EXPECT(string != NULL && strcmp(json_string_value(string), expected) == 0);
    json_decref(string);
}

/* One, two, three and four bytes. */
static const char *const characters[] = {"a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8c\xbe"};

static void
test_cut(void)
{
    char text[64] = "", expected[64];

    for (size_t c = 0; c < 4; c++) {
        (void)strcat(text, characters[c]);
    }
    for (size_t length = 0, whole = 0, c = 0; length <= strlen(text); length++) {
        char cut[64];
        if (c < 4 && length == whole + strlen(characters[c])) {
            whole = length;
            c++;
        }
        (void)snprintf(cut, sizeof(cut), "%.*s", (int)length, text);
        (void)snprintf(expected, sizeof(expected), "%.*s%.*s", (int)whole, text, (int)(length - whole), "???");
        expect(cut, expected);
    }
}

static void
test_random(void)
{
    uint64_t random = leat_test_seed;

    for (uint32_t round = 0; round < 20000; round++) {
        char text[40] = "";
        size_t length = 0;
        while (length < 30) {
            const uint64_t drawn = leat_test_random(&random);
            if (drawn % 2 == 0) {
                (void)strcpy(text + length, characters[drawn / 2 % 4]);
            } else {
                text[length] = (char)(1 + drawn / 2 % 255);
                text[length + 1] = '\0';
            }
            length += strlen(text + length);
        }
        json_t *string = leat_json_text(text);
        EXPECT(string != NULL && json_string_length(string) == length);
        for (size_t b = 0; b < length; b++) {
            const char is = json_string_value(string)[b];
            EXPECT(is == text[b] || (is == '?' && (text[b] & 0x80) != 0));
        }
        json_decref(string);
    }
}

int
main(void)
{
    leat_test_init();
    expect("", "");
    expect("no model 'gr\xc3\xb6\xc3\x9f" "e'", "no model 'gr\xc3\xb6\xc3\x9f" "e'");
    expect("no model 'gr\xc3'", "no model 'gr?'");
    expect("\xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80 \x80", "?? ??? ???? ?"); /* too long a form, half of a pair, none, a rest */
    test_cut();
    test_random();
    return 0;
}
