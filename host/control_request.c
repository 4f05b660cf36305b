/* What a client may ask for: one object, {"command": "status"}, or {"command": "halt" or "resume", "by":
 * NAME, "reason": TEXT}; a halt's reason may be empty. */
#include <stdio.h>
#include <string.h>

#include "control_self.h"

/* 0, or -1. */
static int text_of(const json_t *root, const char *key, int may_be_empty, char *out, size_t chars)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value) || order_text_check(text, chars) ||
        (!*text && !may_be_empty))
        return -1;
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static const char *fill(const json_t *root, struct control_request *request)
{
    static const char *const commands[] = {"status", "halt", "resume"};
    const char *command = json_string_value(json_object_get(root, "command"));
    unsigned i = 0;
    while (command && i < 3 && strcmp(command, commands[i]))
        i++;
    if (!command || i == 3)
        return "'command' is not status, halt or resume";
    request->command = i;
    if (json_object_size(root) != (i == CONTROL_STATUS ? 1 : 3))
        return "keys are missing, or too many";
    if (i == CONTROL_STATUS)
        return NULL;
    if (text_of(root, "by", 0, request->name, sizeof(request->name)))
        return "'by' is not 1 to 30 printable ASCII characters";
    if (text_of(root, "reason", i == CONTROL_HALT, request->reason, sizeof(request->reason)))
        return "'reason' is not 1 to 93 printable ASCII characters";
    return NULL;
}

const char *control_request_parse(const char *text, size_t size_bytes, struct control_request *request)
{
    static_assert(ORDER_NAME_CHARS == 31 && ORDER_REASON_CHARS == 94, "as the messages say");
    *request = (struct control_request){0};
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *wrong = json_is_object(root) ? fill(root, request) : "is no JSON object";
    json_decref(root);
    return wrong;
}
