/* Decoded fields against what independent decoders say, on real frames and on a vector of all 23 types: once
 * through the modules, once through the output of killline decode --json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "command.h"
#include "net/capture.h"
#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"
#include "realdata.h"

enum { TEXT_BYTES_MAX = 1 << 20 };

/* ---- JSON text: jansson holds integers up to 2^63 - 1 and one value per key; our inputs go beyond both. */

/* Puts integers outside strings into quotes, so that all 64 bits are kept: {"a":1} becomes {"a":"1"}. */
static char *quote_integers(const char *text)
{
    char *out = malloc(3 * strlen(text) + 1), *p = out;
    int in_string = 0, in_number = 0;
    assert_non_null(out);
    for (; *text; text++) {
        int digit = !in_string && *text >= '0' && *text <= '9';
        if (digit != in_number)
            *p++ = '"';
        in_number = digit;
        if (in_string && *text == '\\')
            *p++ = *text++;
        else if (*text == '"')
            in_string = !in_string;
        *p++ = *text;
    }
    *p = 0;
    return out;
}

/* A dissector repeats the key "...message_tree" for every message of a packet: numbers them, key#1, key#2 ...
 */
static char *number_repeated_keys(const char *text, const char *key)
{
    char *out = malloc(2 * strlen(text) + 1), *p = out;
    int n = 0;
    assert_non_null(out);
    while (*text) {
        if (!strncmp(text, key, strlen(key))) {
            p += sprintf(p, "message_tree#%d\"", ++n);
            text += strlen(key);
        } else {
            *p++ = *text++;
        }
    }
    *p = 0;
    return out;
}

static char *read_all(FILE *file)
{
    char *text = malloc(TEXT_BYTES_MAX);
    assert_non_null(text);
    size_t n = fread(text, 1, TEXT_BYTES_MAX, file);
    assert_true(n < TEXT_BYTES_MAX);
    text[n] = 0;
    return text;
}

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!value)
        fail_msg("line %d: %s", error.line, error.text);
    return value;
}

/* ---- Two ways to the same: an array of objects, all values strings. */

static void set_integer(json_t *object, const char *name, uint64_t value)
{
    char digits[21];
    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    assert_int_equal(json_object_set_new(object, name, json_string(digits)), 0);
}

static void set_alpha(json_t *object, const char *name, const char *text, size_t n)
{
    while (n > 1 && text[n - 1] == ' ')
        n--;
    if (n == 1 && text[0] == ' ')
        n = 0;
    assert_int_equal(json_object_set_new(object, name, json_stringn(text, n)), 0);
}

static json_t *message_object(const uint8_t *bytes, uint16_t len)
{
    struct itch_msg msg;
    json_t *object = json_object();
    assert_int_equal(itch_decode(bytes, len, &msg), len); /* all that we have is of known types and lengths */
    const struct itch_message_info *info = itch_message_info(msg.type);
    set_integer(object, "len", len);
    json_object_set_new(object, "type", json_stringn((const char *)&msg.type, 1));
    json_object_set_new(object, "name", json_string(info->name));
    set_integer(object, "locate", msg.locate);
    set_integer(object, "tracking", msg.tracking);
    set_integer(object, "timestamp", msg.timestamp_ns);
    for (int i = 0; i < info->n_field; i++) {
        const struct itch_field *field = &info->field[i];
        if (field->kind == ITCH_U8)
            json_object_set_new(object, field->name, json_stringn(itch_field_alpha(&msg, field), 1));
        else if (field->kind == ITCH_ALPHA)
            set_alpha(object, field->name, itch_field_alpha(&msg, field), field->bytes);
        else
            set_integer(object, field->name, itch_field_integer(&msg, field));
    }
    return object;
}

static void append_numbered(json_t *array, json_t *object)
{
    set_integer(object, "number", json_array_size(array) + 1);
    assert_int_equal(json_array_append_new(array, object), 0);
}

static void append_frame(json_t *array, const struct capture_frame *frame, uint64_t frame_no, int verify)
{
    struct packet_udp udp;
    struct mold_packet_header header;
    assert_int_equal(packet_parse(frame->data, frame->len, verify, &udp), PACKET_OK);
    assert_int_equal(mold_parse(udp.payload, udp.payload_len, &header), 0);
    assert_int_equal(header.bytes, udp.payload_len);
    const uint8_t *block = udp.payload + MOLD_HEADER_BYTES;
    for (uint32_t i = 0; i < header.n_message; i++) {
        uint16_t len = be_load_u16(block);
        json_t *object = message_object(block + 2, len);
        set_integer(object, "frame", frame_no);
        set_integer(object, "seq_no", header.seq_no + i);
        set_alpha(object, "session", (const char *)header.session, MOLD_SESSION_BYTES);
        append_numbered(array, object);
        block += 2 + len;
    }
}

/* verify: the untouched captures have right checksums, those with zeroed addresses cannot. */
static json_t *decode_by_modules(const char *path, int verify)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, 0, error);
    if (!capture)
        fail_msg("%s", error);
    json_t *array = json_array();
    int status;
    if (capture_kind(capture) == CAPTURE_BINARYFILE) {
        const uint8_t *msg;
        uint16_t len;
        while ((status = capture_next_message(capture, &msg, &len, error)) > 0)
            append_numbered(array, message_object(msg, len));
    } else {
        struct capture_frame frame;
        for (uint64_t n = 1; (status = capture_next_frame(capture, &frame, error)) > 0; n++)
            append_frame(array, &frame, n, verify);
    }
    assert_int_equal(status, 0);
    capture_close(capture);
    return array;
}

static json_t *decode_by_command(const char *path)
{
    struct command_result result = command_run("decode --json '%s'", path);
    assert_int_equal(result.status, 0);
    char *quoted = quote_integers(result.out);
    json_t *array = json_array();
    for (char *line = strtok(quoted, "\n"); line; line = strtok(NULL, "\n"))
        assert_int_equal(json_array_append_new(array, parse(line)), 0);
    free(quoted);
    command_free(&result);
    return array;
}

/* Decodes both ways; they must agree. Returns the command's output. */
static json_t *decode(const char *path, int verify)
{
    json_t *modules = decode_by_modules(path, verify), *command = decode_by_command(path);
    assert_true(json_array_size(command) > 0);
    if (!json_equal(modules, command))
        fail_msg("%s: the command prints something else than the modules decode", path);
    json_decref(modules);
    return command;
}

static void assert_field(const json_t *message, const char *name, const char *want)
{
    const char *have = json_string_value(json_object_get(message, name));
    if (!have || strcmp(have, want))
        fail_msg("message %s, %s: '%s', should be '%s'",
                 json_string_value(json_object_get(message, "number")), name, have ? have : "(absent)", want);
}

/* ---- The vector of all types. */

/* short=ours, by type; names not listed are the same. */
static const char *const vector_names[] = {
    "S event=event_code ",
    "R mktcat=market_category fin=financial_status_indicator lot=round_lot_size rlo=round_lots_only "
    "cls=issue_classification sub=issue_sub_type auth=authenticity sst=short_sale_threshold_indicator "
    "ipo=ipo_flag "
    "luld=luld_reference_price_tier etp=etp_flag lev=etp_leverage_factor inv=inverse_indicator ",
    "H state=trading_state resv=reserved ",
    "Y action=reg_sho_action ",
    "L pmm=primary_market_maker mode=market_maker_mode pstate=market_participant_state ",
    "V l1=level_1 l2=level_2 l3=level_3 ",
    "W level=breached_level ",
    "K reltime=ipo_quotation_release_time qual=ipo_quotation_release_qualifier price=ipo_price ",
    "O elig=open_eligibility_status min=minimum_allowable_price max=maximum_allowable_price "
    "near=near_execution_price "
    "neartime=near_execution_time lo=lower_price_range_collar hi=upper_price_range_collar ",
    "J ref=auction_collar_reference_price upper=upper_auction_collar_price lower=lower_auction_collar_price "
    "ext=auction_collar_extension ",
    "h mkt=market_code act=operational_halt_action ",
    "I paired=paired_shares imb=imbalance_shares dir=imbalance_direction far=far_price near=near_price "
    "ref=current_reference_price cross=cross_type var=price_variation_indicator ",
    "A oref=order_reference_number side=buy_sell_indicator ",
    "F oref=order_reference_number side=buy_sell_indicator mpid=attribution ",
    "E oref=order_reference_number shares=executed_shares match=match_number ",
    "C oref=order_reference_number shares=executed_shares match=match_number print=printable "
    "price=execution_price ",
    "X oref=order_reference_number shares=cancelled_shares ",
    "D oref=order_reference_number ",
    "U oref=original_order_reference_number nref=new_order_reference_number ",
    "P oref=order_reference_number side=buy_sell_indicator match=match_number ",
    "Q price=cross_price match=match_number cross=cross_type ",
    "B match=match_number ",
    "N flag=interest_flag ",
};

static const char *vector_name(char type, const char *name, char *out, size_t size)
{
    char pattern[64];
    if (!strcmp(name, "ts"))
        return "timestamp";
    snprintf(pattern, sizeof(pattern), " %s=", name);
    for (size_t i = 0; i < sizeof(vector_names) / sizeof(vector_names[0]); i++) {
        const char *at = vector_names[i][0] == type ? strstr(vector_names[i], pattern) : NULL;
        if (at) {
            at += strlen(pattern);
            snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
            return out;
        }
    }
    return name;
}

static void all_types_vector(void **state)
{
    (void)state;
    char path[REALDATA_PATH_CHARS];
    json_t *messages = decode(realdata_path(path, "vectors/alltypes_2026.itch50"), 1);
    FILE *file = fopen(realdata_path(path, "vectors/alltypes_2026.golden.json"), "r");
    assert_non_null(file);
    char *text = read_all(file), *quoted = quote_integers(text);
    fclose(file);
    json_t *golden = parse(quoted), *want;
    size_t i, n_field = 0;
    int types_seen[256] = {0}, n_type = 0;
    assert_int_equal(json_array_size(golden), 34);
    assert_int_equal(json_array_size(messages), 34);
    json_array_foreach(golden, i, want)
    {
        const char *name;
        json_t *value;
        char type = json_string_value(json_object_get(want, "type"))[0], ours[64];
        json_object_foreach(want, name, value)
        {
            assert_field(json_array_get(messages, i), vector_name(type, name, ours, sizeof(ours)),
                         json_string_value(value));
            n_field++;
        }
        n_type += !types_seen[(uint8_t)type]++;
        /* Nothing of ours is without a counterpart: number and name are our own. */
        assert_int_equal(json_object_size(json_array_get(messages, i)), json_object_size(want) + 2);
    }
    assert_int_equal(n_type, 23);
    print_message("alltypes_2026: %zu fields equal\n", n_field);
    json_decref(golden);
    json_decref(messages);
    free(text);
    free(quoted);
}

/* ---- The captures. */

/* Decimal to integer of a scale: "12.34" with 4 digits is "123400". */
static void scale_price(const char *decimal, int n_digit, char *out, size_t size)
{
    const char *point = strchr(decimal, '.');
    int n_fraction = point ? (int)strlen(point + 1) : 0;
    char digits[64];
    assert_true(n_fraction <= n_digit);
    snprintf(digits, sizeof(digits), "%.*s%s%.*s", (int)strcspn(decimal, "."), decimal,
             point ? point + 1 : "", n_digit - n_fraction, "00000000");
    snprintf(out, size, "%llu", strtoull(digits, NULL, 10));
}

/* The dissector's last name component, without underscores: 1 when it is that of our field. */
static int same_name(const char *theirs, const char *ours)
{
    for (; *ours; ours++)
        if (*ours != '_' && *ours != *theirs++)
            return 0;
    return *theirs == 0;
}

/* Compares one value that the dissector names; key as a.b.c.name. */
static void compare_value(const json_t *message, const char *key, const char *want)
{
    static const char *const header[][2] = {{"messagelength", "len"},       {"messagetype", "type"},
                                            {"stocklocate", "locate"},      {"locatecode", "locate"},
                                            {"trackingnumber", "tracking"}, {"timestamp", "timestamp"}};
    static const char *const other[][2] = {{"crossshares", "shares"}, {"canceledshares", "cancelledshares"}};
    const char *name = strrchr(key, '.') + 1;
    for (size_t i = 0; i < sizeof(header) / sizeof(header[0]); i++)
        if (!strcmp(name, header[i][0])) {
            assert_field(message, header[i][1], want);
            return;
        }
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        if (!strcmp(name, other[i][0]))
            name = other[i][1];
    const char *type = json_string_value(json_object_get(message, "type"));
    const struct itch_message_info *info = itch_message_info((uint8_t)type[0]);
    for (int i = 0; i < info->n_field; i++) {
        if (!same_name(name, info->field[i].name))
            continue;
        char price[32];
        if (info->field[i].kind == ITCH_PRICE4) {
            scale_price(want, 4, price, sizeof(price));
            want = price;
        }
        assert_field(message, info->field[i].name, want);
        return;
    }
    fail_msg("type %s: no field of ours is called %s", type, name);
}

/* All leaves below one message's tree. Returns how many. */
static size_t compare_tree(const json_t *message, json_t *tree)
{
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach(tree, key, value)
    {
        if (json_is_object(value)) {
            n += compare_tree(message, value);
        } else if (*json_string_value(value) || !strstr(key, "message")) { /* "" there is a heading */
            if (strstr(key, "messageindex"))
                continue;
            compare_value(message, key, json_string_value(value));
            n++;
        }
    }
    return n;
}

static json_t *member(json_t *object, const char *ending)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t n = strlen(key), k = strlen(ending);
        if (n >= k && !strcmp(key + n - k, ending))
            return value;
    }
    fail_msg("the golden file has no %s", ending);
    return NULL;
}

/* Messages of one frame, from messages[at] on. Returns how many. */
static size_t compare_frame(json_t *messages, size_t at, json_t *frame, size_t *n_field)
{
    json_t *layers = json_object_get(json_object_get(frame, "_source"), "layers"), *tree;
    const char *frame_no = json_string_value(member(json_object_get(layers, "frame"), "frame.number"));
    json_t *itch = member(layers, "itch.v5.0.2017"), *header = member(itch, "packetheader_tree");
    const char *key;
    size_t n = 0;
    json_object_foreach(itch, key, tree)
    {
        if (!strstr(key, "message_tree#"))
            continue;
        const json_t *message = json_array_get(messages, at + n);
        assert_non_null(message);
        assert_field(message, "frame", frame_no);
        if (json_string_length(member(header, ".session"))) /* "" stands for ten zero bytes */
            assert_field(message, "session", json_string_value(member(header, ".session")));
        char seq_no[32];
        snprintf(seq_no, sizeof(seq_no), "%llu",
                 strtoull(json_string_value(member(header, ".sequencenumber")), NULL, 10) + n);
        assert_field(message, "seq_no", seq_no);
        *n_field += compare_tree(message, tree);
        n++;
    }
    assert_int_equal(n, strtoull(json_string_value(member(header, ".messagecount")), NULL, 10));
    return n;
}

static void compare_capture(const char *name)
{
    char path[REALDATA_PATH_CHARS], relative[256];
    snprintf(relative, sizeof(relative), "totalview-pcap/%s.pcap", name);
    json_t *messages = decode(realdata_path(path, relative), strncmp(name, "typed_", 6) != 0);
    snprintf(relative, sizeof(relative), "totalview-golden/%s.json", name);
    FILE *file = fopen(realdata_path(path, relative), "r");
    assert_non_null(file);
    char *text = read_all(file),
         *numbered = number_repeated_keys(text, "nasdaq.nsmequities.totalview.itch.v5.0.2017.message_tree\"");
    fclose(file);
    json_error_t error;
    json_t *golden = json_loads(numbered, 0, &error), *frame; /* other layers repeat keys too: not ours */
    if (!golden)
        fail_msg("%s: line %d: %s", path, error.line, error.text);
    size_t i, at = 0, n_field = 0;
    json_array_foreach(golden, i, frame) at += compare_frame(messages, at, frame, &n_field);
    assert_int_equal(at, json_array_size(messages));
    assert_true(at > 0 && n_field > 5 * at);
    print_message("%s: %zu messages, %zu fields equal\n", name, at, n_field);
    json_decref(golden);
    json_decref(messages);
    free(text);
    free(numbered);
}

static void captures(void **state)
{
    (void)state;
    static const char *const names[] = {"AddOrderNoMpidAttributionMessage",
                                        "MarketParticipantPositionMessage",
                                        "Multiple.Packets",
                                        "NetOrderImbalanceIndicatorMessage",
                                        "OrderDeleteMessage",
                                        "OrderExecutedMessage",
                                        "OrderReplaceMessage",
                                        "StockTradingActionMessage",
                                        "typed_AddOrderWithMPID",
                                        "typed_CrossTrade",
                                        "typed_LULDAuctionCollar",
                                        "typed_NonCrossTrade",
                                        "typed_OrderCancel",
                                        "typed_OrderExecutedWithPrice",
                                        "typed_RegSHORestriction",
                                        "typed_SystemEvent"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        compare_capture(names[i]);
}

int main(void)
{
    realdata_require();
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_types_vector), cmocka_unit_test(captures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
