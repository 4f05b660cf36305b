// One row of the MAC array in RTL, hand-written: mac_array and mac_round_block of ../../mac.c for one row, a column step
// per clock. Not part of a build: it shows what the kernel's cycle model claims of a row, namely one DSP slice per
// product, an accumulator at II = 1, and the latencies of ../../kl_latency.h. mac_row_check runs it.
//
//   KL_LAT_MULTIPLY 3     registers A and B, M, P of the slice
//   KL_LAT_TREE           two levels of adders per clock
//   KL_LAT_ACCUMULATE 1   column steps into a block, from half of the row's shift on
//   KL_LAT_ROUND_BLOCK 1  shifted block to z
module mac_row #(
    parameter COLS = 16  // 4 or 16
) (
    input                      clk,
    // A column step and its slot's marks; valid 0 is a bubble.
    input                      valid,
    input                      first,        // of the row: z starts from z_start
    input                      block_first,
    input                      block_last,
    input      [16*COLS-1:0]   w,
    input      [16*COLS-1:0]   operand,
    input      [4:0]           shift,
    input signed [31:0]        z_start,
    // LATENCY clocks later.
    output reg                 z_valid,
    output reg signed [31:0]   z
);
    localparam TREE = COLS > 4 ? 2 : 1;
    localparam DEPTH = 3 + TREE;  // up to the accumulator

    // ---- multipliers ----
    wire signed [31:0] p[0:COLS-1];
    genvar k;
    generate
        for (k = 0; k < COLS; k = k + 1) begin : slice
            reg signed [15:0] a_reg, b_reg;
            reg signed [31:0] m_reg, p_reg;
            always @(posedge clk) begin
                a_reg <= w[16*k+:16];
                b_reg <= operand[16*k+:16];
                m_reg <= a_reg * b_reg;
                p_reg <= m_reg;
            end
            assign p[k] = p_reg;
        end
    endgenerate

    // ---- adder tree ----
    reg signed [31:0] quad[0:COLS/4-1];
    generate
        for (k = 0; k < COLS / 4; k = k + 1) begin : level
            always @(posedge clk) quad[k] <= (p[4*k] + p[4*k+1]) + (p[4*k+2] + p[4*k+3]);
        end
    endgenerate
    wire signed [31:0] sum;
    generate
        if (COLS == 4) begin : narrow
            assign sum = quad[0];
        end else begin : wide
            reg signed [31:0] all;
            always @(posedge clk) all <= (quad[0] + quad[1]) + (quad[2] + quad[3]);
            assign sum = all;
        end
    endgenerate

    // ---- the slot's marks beside it ----
    reg [DEPTH:0] valid_at, first_at, block_first_at, block_last_at;
    reg [4:0] shift_at[0:DEPTH];
    reg signed [31:0] z_start_at[0:DEPTH];
    integer i;
    always @(posedge clk) begin
        valid_at <= {valid_at[DEPTH-1:0], valid};
        first_at <= {first_at[DEPTH-1:0], first};
        block_first_at <= {block_first_at[DEPTH-1:0], block_first};
        block_last_at <= {block_last_at[DEPTH-1:0], block_last};
        shift_at[0] <= shift;
        z_start_at[0] <= z_start;
        for (i = 1; i <= DEPTH; i = i + 1) begin
            shift_at[i] <= shift_at[i-1];
            z_start_at[i] <= z_start_at[i-1];
        end
    end

    // ---- block and rounding ----
    reg signed [31:0] acc;
    wire signed [31:0] half = (32'sd1 <<< shift_at[DEPTH-1]) >>> 1;
    always @(posedge clk)
        if (valid_at[DEPTH-1]) acc <= (block_first_at[DEPTH-1] ? half : acc) + sum;

    wire signed [31:0] from = first_at[DEPTH] ? z_start_at[DEPTH] : z;
    always @(posedge clk) begin
        z_valid <= valid_at[DEPTH] & block_last_at[DEPTH];
        if (valid_at[DEPTH])
            z <= block_last_at[DEPTH] ? from + (acc >>> shift_at[DEPTH]) : from;
    end
endmodule
