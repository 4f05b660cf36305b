/* Any bytes as a client's line: refused with a word why, or an order whose texts are an audit event's. */
#include <stdlib.h>
#include <string.h>

#include "host/control_self.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct control_request request;
    const char *wrong = control_request_parse((const char *)data, size, &request);
    if (wrong) {
        char answer[CONTROL_ANSWER_BYTES];
        control_refuse(wrong, answer);
        require(strstr(answer, "\"ok\":false") && !strchr(answer, '\n'));
        return 0;
    }
    require(request.command <= CONTROL_RESUME && !order_text_check(request.name, sizeof(request.name)) &&
            !order_text_check(request.reason, sizeof(request.reason)));
    require(request.command == CONTROL_STATUS ? !*request.name && !*request.reason : *request.name);
    require(request.command != CONTROL_RESUME || *request.reason);
    char by[ORDER_BY_CHARS];
    order_by(by, request.name, UINT32_MAX); /* asserts that it fits */
    return 0;
}
